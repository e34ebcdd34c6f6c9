"""Put the explanations of failures into the JUnit file, whose tests pytest describes as they end."""

from __future__ import annotations

import functools
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import pytest


class Junit:
    """The tests of the JUnit file of a session, if it has one (``--junit-xml``)."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @functools.cached_property
    def _tests(self) -> dict[str, Element]:
        """The elements of all tests, by the name that pytest gives each. They are written after all else."""
        from _pytest.junitxml import xml_key

        log: Any = self._config.stash.get(xml_key, None)
        elements = () if log is None else (reporter.to_xml() for reporter in log.node_reporters_ordered)
        return {element.get("name", ""): element for element in elements}

    def explain(self, report: pytest.TestReport, text: str) -> None:
        """Write the text and the properties of a failed test in the place of those that it had."""
        from _pytest.junitxml import bin_xml_escape

        test = self._tests.get(report.nodeid.rpartition("::")[2])
        failure = None if test is None else test.find("failure")
        if test is None or failure is None:
            return
        failure.text = bin_xml_escape(text)
        failure.set("message", bin_xml_escape(text.partition("\n")[0]))
        properties = test.find("properties")
        if properties is not None:
            properties.clear()
            for name, value in report.user_properties:
                SubElement(properties, "property", name=name, value=bin_xml_escape(value))
