"""The entry of ncnn in the suite's table of runtimes; nothing of the suite is imported here, which reads it early."""

ENTRY = {
    "interface": 1,
    "name": "ncnn",
    "title": "ncnn",
    "opens": "conformance_ncnn.session:open_model",
    "absent": "conformance_ncnn.session:absence",
    "second_opinion": True,
    "values_only": True,
    "no_witness": "conformance_ncnn.session:no_witness",
    "packages": ("ncnn", "pnnx"),
}
