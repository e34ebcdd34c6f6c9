"""The entry of IREE in the suite's table of runtimes; nothing of the suite is imported here, which reads it early."""

ENTRY = {
    "interface": 1,
    "name": "iree",
    "title": "IREE",
    "opens": "conformance_iree.session:open_model",
    "absent": "conformance_iree.session:absence",
    "second_opinion": True,
    "values_only": True,
    "packages": ("iree-base-compiler", "iree-base-runtime"),
}
