"""An image classifier in the style of the CIFAR-10 tutorial: records on disk, distortions, epochs."""
import os
import tempfile

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS

tf.app.flags.DEFINE_integer('batch_size', 16, """Number of images in a batch.""")
tf.app.flags.DEFINE_integer('num_epochs', 12, """How often each example is seen.""")
tf.app.flags.DEFINE_string('data_dir', '', """Where the records are; a new directory by default.""")

IMAGE_SIZE = 12
CROP_SIZE = 10
NUM_CLASSES = 3
EXAMPLES_PER_FILE = 40
NUM_FILES = 3


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def write_records(data_dir):
    """Stripes: across, along, or none; symmetric, so that flips keep the class."""
    rng = np.random.RandomState(0)
    for i in range(NUM_FILES):
        filename = os.path.join(data_dir, 'data_batch_%d.tfrecord' % i)
        with tf.python_io.TFRecordWriter(filename) as writer:
            for _ in range(EXAMPLES_PER_FILE):
                label = rng.randint(NUM_CLASSES)
                image = rng.randint(0, 60, size=(IMAGE_SIZE, IMAGE_SIZE, 1)).astype(np.uint8)
                if label == 0:
                    image[::3] += 120
                elif label == 1:
                    image[:, ::3] += 120
                example = tf.train.Example(features=tf.train.Features(feature={
                    'height': _int64_feature(IMAGE_SIZE),
                    'label': _int64_feature(label),
                    'image_raw': _bytes_feature(image.tobytes()),
                }))
                writer.write(example.SerializeToString())


def read_and_decode(filename_queue):
    reader = tf.TFRecordReader()
    key, serialized_example = reader.read(filename_queue)
    features = tf.parse_single_example(serialized_example, features={
        'image_raw': tf.FixedLenFeature([], tf.string),
        'label': tf.FixedLenFeature([], tf.int64),
    })
    image = tf.decode_raw(features['image_raw'], tf.uint8)
    image = tf.reshape(image, [IMAGE_SIZE, IMAGE_SIZE, 1])
    label = tf.cast(features['label'], tf.int32)
    return key, tf.cast(image, tf.float32), label


def distorted_inputs(data_dir, batch_size):
    filenames = [os.path.join(data_dir, 'data_batch_%d.tfrecord' % i) for i in range(NUM_FILES)]
    with tf.name_scope('data_augmentation'):
        filename_queue = tf.train.string_input_producer(filenames, num_epochs=FLAGS.num_epochs)
        _, image, label = read_and_decode(filename_queue)
        distorted_image = tf.random_crop(image, [CROP_SIZE, CROP_SIZE, 1])
        distorted_image = tf.image.random_flip_left_right(distorted_image)
        distorted_image = tf.image.random_brightness(distorted_image, max_delta=30)
        distorted_image = tf.image.random_contrast(distorted_image, lower=0.5, upper=1.5)
        float_image = tf.image.per_image_standardization(distorted_image)
        float_image.set_shape([CROP_SIZE, CROP_SIZE, 1])
        images, labels = tf.train.shuffle_batch(
            [float_image, label], batch_size=batch_size, num_threads=3,
            capacity=60 + 3 * batch_size, min_after_dequeue=60)
    return images, labels


def inference(images):
    kernel = tf.get_variable('kernel', [3, 3, 1, 8],
                             initializer=tf.truncated_normal_initializer(stddev=0.3, seed=1))
    biases = tf.get_variable('biases', [8], initializer=tf.constant_initializer(0.1))
    conv = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, kernel, [1, 1, 1, 1], 'SAME'), biases))
    pool = tf.nn.max_pool(conv, [1, 2, 2, 1], [1, 2, 2, 1], 'SAME')
    flat = tf.reshape(pool, [FLAGS.batch_size, -1])
    weights = tf.get_variable('weights', [flat.get_shape()[1].value, NUM_CLASSES],
                              initializer=tf.truncated_normal_initializer(stddev=0.04, seed=2))
    return tf.matmul(flat, weights)


class _Recorder(tf.train.SessionRunHook):
    """Remembers the loss of each step."""

    def __init__(self, loss):
        self.loss = loss
        self.values = []
        self.ended = False

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)

    def end(self, session):
        self.ended = True


def main(argv=None):
    data_dir = FLAGS.data_dir or tempfile.mkdtemp()
    write_records(data_dir)
    count = sum(1 for i in range(NUM_FILES) for _ in tf.python_io.tf_record_iterator(
        os.path.join(data_dir, 'data_batch_%d.tfrecord' % i)))
    with tf.Graph().as_default():
        global_step = tf.train.get_or_create_global_step()
        images, labels = distorted_inputs(data_dir, FLAGS.batch_size)
        logits = inference(images)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=logits))
        train_op = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=global_step)
        recorder = _Recorder(loss)
        with tf.train.MonitoredTrainingSession(
                hooks=[tf.train.NanTensorHook(loss), recorder],
                config=tf.ConfigProto(log_device_placement=False)) as mon_sess:
            while not mon_sess.should_stop():
                mon_sess.run(train_op)
    steps = count * FLAGS.num_epochs // FLAGS.batch_size
    print('result examples=%d steps as many as batches: %s, learned: %s, ended: %s' % (
        count, len(recorder.values) == steps, np.mean(recorder.values[-10:]) < 0.3, recorder.ended))


if __name__ == '__main__':
    tf.app.run()
