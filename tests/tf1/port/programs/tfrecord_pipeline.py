"""Writes TFRecord files of Examples and reads them by a filename queue, threads and a coordinator."""
import os

import numpy as np
import tensorflow as tf

FILES = ["shard-%d.tfrecords" % i for i in range(3)]
PER_FILE = 20
EPOCHS = 2


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _float_feature(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def convert_to():
    for number, name in enumerate(FILES):
        writer = tf.python_io.TFRecordWriter(name)
        for index in range(PER_FILE):
            image = np.full([2, 3], 10 * number + index, np.uint8)
            example = tf.train.Example(features=tf.train.Features(feature={
                'height': _int64_feature(2),
                'label': _int64_feature(number * PER_FILE + index),
                'weights': _float_feature([0.5, float(index)]),
                'image_raw': _bytes_feature(image.tobytes())}))
            writer.write(example.SerializeToString())
        writer.close()


def read_and_decode(filename_queue):
    reader = tf.TFRecordReader()
    _, serialized_example = reader.read(filename_queue)
    features = tf.parse_single_example(
        serialized_example,
        features={
            'image_raw': tf.FixedLenFeature([], tf.string),
            'weights': tf.FixedLenFeature([2], tf.float32),
            'label': tf.FixedLenFeature([], tf.int64),
        })
    image = tf.decode_raw(features['image_raw'], tf.uint8)
    image.set_shape([6])
    # Convert from [0, 255] -> [-0.5, 0.5] floats.
    image = tf.cast(image, tf.float32) * (1. / 255) - 0.5
    return image, features['weights'], tf.cast(features['label'], tf.int32)


def run_training():
    with tf.Graph().as_default():
        filename_queue = tf.train.string_input_producer(FILES, num_epochs=EPOCHS, shuffle=False)
        image, weights, label = read_and_decode(filename_queue)
        images, weights, labels = tf.train.batch(
            [image, weights, label], batch_size=8, num_threads=2, capacity=64,
            allow_smaller_final_batch=True)
        mean = tf.reduce_mean(images)

        init_op = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        sess = tf.Session()
        sess.run(init_op)
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        seen, means, sizes = [], [], []
        try:
            while not coord.should_stop():
                value, numbers, pairs = sess.run([mean, labels, weights])
                assert pairs.shape == (len(numbers), 2)
                seen.extend(numbers)
                means.append(value)
                sizes.append(len(numbers))
        except tf.errors.OutOfRangeError:
            print('Done training for %d epochs, %d steps.' % (EPOCHS, len(means)))
        finally:
            # When done, ask the threads to stop.
            coord.request_stop()

        # Wait for threads to finish.
        coord.join(threads)
        sess.close()
        return seen, means, sizes


def main(unused_argv):
    convert_to()
    count = sum(1 for _ in tf.python_io.tf_record_iterator(FILES[0]))
    first = next(tf.python_io.tf_record_iterator(FILES[1]))
    example = tf.train.Example.FromString(first)
    print("records", count, "first label", example.features.feature['label'].int64_list.value[0])
    seen, means, sizes = run_training()
    total = sum(m * s for m, s in zip(means, sizes)) / sum(sizes)
    every = np.bincount(seen, minlength=len(FILES) * PER_FILE)
    print("sizes", max(sizes), sum(sizes))
    print("result each label %s times, mean %.4f" % (sorted(set(every.tolist())), total))
    for name in FILES:
        os.remove(name)


if __name__ == '__main__':
    tf.app.run(main=main)
