"""TF1: ``tf.train.SaverDef``, for its constants."""


class SaverDef:
    """The formats of TF1's checkpoints, for ``Saver(write_version=...)``, which has one of its own."""

    LEGACY = 0
    V1 = 1
    V2 = 2
