"""The entry of LiteRT in the suite's table of runtimes; it imports nothing of the suite, which reads it early."""

ENTRY = {
    "interface": 1,
    "name": "litert",
    "title": "LiteRT",
    "opens": "conformance_litert.session:open_model",
    "absent": "conformance_litert.session:absence",
    "second_opinion": True,
    "values_only": True,
    "no_witness": "conformance_litert.session:no_witness",
    "packages": ("ai-edge-litert",),
}
