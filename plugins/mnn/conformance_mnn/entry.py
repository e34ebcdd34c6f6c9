"""The entry of MNN in the suite's table of runtimes; nothing of the suite is imported here, which reads it early."""

ENTRY = {
    "interface": 1,
    "name": "mnn",
    "title": "MNN",
    "opens": "conformance_mnn.session:open_model",
    "absent": "conformance_mnn.session:absence",
    "second_opinion": True,
    "values_only": True,
    "no_witness": "conformance_mnn.session:no_witness",
    "packages": ("MNN",),
}
