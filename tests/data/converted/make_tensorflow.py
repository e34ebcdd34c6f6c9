"""Make a small network of TensorFlow with tf2onnx, with what TensorFlow itself computes.

pip install tensorflow-cpu tf2onnx
python make_tensorflow.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf2onnx


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    kernel, head = (rng.normal(size=size).astype(np.float32) for size in ((3, 3, 2, 4), (4, 3)))

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 2), tf.float32, name="image")])
    def network(image: tf.Tensor) -> tf.Tensor:
        seen = tf.nn.relu(tf.nn.conv2d(image, tf.constant(kernel), strides=2, padding="SAME"))
        return tf.nn.softmax(tf.reduce_mean(seen, axis=(1, 2)) @ tf.constant(head))

    model, _ = tf2onnx.convert.from_function(network, input_signature=network.input_signature, opset=17)
    (folder / "tensorflow_conv.onnx").write_bytes(model.SerializeToString())
    image = rng.normal(size=(3, 8, 8, 2)).astype(np.float32)
    names = model.graph.input[0].name, model.graph.output[0].name
    np.savez(folder / "tensorflow_conv.npz", **dict(zip(names, (image, network(image).numpy()), strict=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
