"""torchvision's operators, for forward expressions; importing it registers them with the exporters."""

from torchvision.ops import nms  # noqa: F401
