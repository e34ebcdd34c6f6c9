"""Make small models of scikit-learn and XGBoost with their converters, each with what the library itself predicts.

pip install scikit-learn skl2onnx onnxmltools xgboost
python make_sklearn.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

OPSET = {"": 17, "ai.onnx.ml": 3}


def keep(folder: Path, name: str, model: object, x: np.ndarray, outputs: list[np.ndarray]) -> None:
    """Write the model, and beside it what the library predicts for ``x``."""
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    names = [output.name for output in model.graph.output]
    np.savez(folder / f"{name}.npz", **{model.graph.input[0].name: x}, **dict(zip(names, outputs, strict=True)))


def main(folder: Path) -> None:
    x, label = make_classification(200, 6, n_informative=4, n_classes=3, random_state=0)
    x = x.astype(np.float32)
    some = x[:16]
    for name, estimator in (
        ("logistic", make_pipeline(StandardScaler(), LogisticRegression())),
        ("forest", RandomForestClassifier(5, max_depth=4, random_state=0)),
    ):
        estimator.fit(x, label)
        model = to_onnx(estimator, x[:1], target_opset=OPSET, options={"zipmap": False})
        keep(folder, name, model, some, [estimator.predict(some), estimator.predict_proba(some).astype(np.float32)])
    x, y = make_regression(200, 6, random_state=0)
    x = x.astype(np.float32)
    network = MLPRegressor(hidden_layer_sizes=(8,), max_iter=400, random_state=0).fit(x, y)
    model = to_onnx(network, x[:1], target_opset=OPSET)
    keep(folder, "perceptron", model, x[:16], [network.predict(x[:16]).astype(np.float32).reshape(-1, 1)])
    boosted(folder, x, y)


def boosted(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    from xgboost import XGBRegressor

    trees = XGBRegressor(n_estimators=6, max_depth=3).fit(x, y)
    model = convert_xgboost(trees, initial_types=[("x", FloatTensorType([None, 6]))], target_opset=15)
    keep(folder, "boosted", model, x[:16], [trees.predict(x[:16]).reshape(-1, 1)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
