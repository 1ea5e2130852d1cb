"""Control flow: ops that run subgraphs. TF1: ``tf.cond``, ``tf.while_loop``."""
