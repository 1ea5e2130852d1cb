"""Skip-gram word vectors with nce_loss, on a made-up language of two topics."""
from __future__ import division
import collections
import math
import random

import numpy as np
import tensorflow as tf

rng = random.Random(3)
TOPICS = [["sun", "sea", "sand", "wave"], ["code", "test", "loop", "task"]]


def read_data(sentences=600):
    words = []
    for _ in range(sentences):
        topic = rng.choice(TOPICS)
        words += [rng.choice(topic) for _ in range(6)]
    return words


def build_dataset(words):
    count = collections.Counter(words).most_common()
    dictionary = {word: index for index, (word, _) in enumerate(sorted(count))}
    data = [dictionary[word] for word in words]
    return data, dictionary, dict(zip(dictionary.values(), dictionary.keys()))


words = read_data()
data, dictionary, reverse_dictionary = build_dataset(words)
vocabulary_size = len(dictionary)
data_index = 0


def generate_batch(batch_size, skip_window):
    """Pairs of a word and one beside it, within a sentence."""
    global data_index
    batch = np.ndarray(shape=(batch_size), dtype=np.int32)
    labels = np.ndarray(shape=(batch_size, 1), dtype=np.int32)
    for i in range(batch_size):
        start = data_index - data_index % 6
        batch[i] = data[data_index]
        context = [p for p in range(max(start, data_index - skip_window),
                                    min(start + 6, data_index + skip_window + 1)) if p != data_index]
        labels[i, 0] = data[rng.choice(context)]
        data_index = (data_index + 1) % len(data)
    return batch, labels


batch_size = 64
embedding_size = 8

graph = tf.Graph()

with graph.as_default():
    tf.set_random_seed(1)

    # Input data.
    train_inputs = tf.placeholder(tf.int32, shape=[batch_size])
    train_labels = tf.placeholder(tf.int32, shape=[batch_size, 1])
    valid_dataset = tf.constant(list(range(vocabulary_size)), dtype=tf.int32)

    with tf.device('/cpu:0'):
        # Look up embeddings for inputs.
        embeddings = tf.Variable(tf.random_uniform([vocabulary_size, embedding_size], -1.0, 1.0))
        embed = tf.nn.embedding_lookup(embeddings, train_inputs)

        # Construct the variables for the NCE loss
        nce_weights = tf.Variable(
            tf.truncated_normal([vocabulary_size, embedding_size],
                                stddev=1.0 / math.sqrt(embedding_size)))
        nce_biases = tf.Variable(tf.zeros([vocabulary_size]))

    loss = tf.reduce_mean(
        tf.nn.nce_loss(weights=nce_weights, biases=nce_biases, labels=train_labels, inputs=embed,
                       num_sampled=3, num_classes=vocabulary_size))
    optimizer = tf.train.AdagradOptimizer(0.5).minimize(loss)

    # Compute the cosine similarity between all embeddings.
    norm = tf.sqrt(tf.reduce_sum(tf.square(embeddings), 1, keep_dims=True))
    normalized_embeddings = embeddings / norm
    valid_embeddings = tf.nn.embedding_lookup(normalized_embeddings, valid_dataset)
    similarity = tf.matmul(valid_embeddings, normalized_embeddings, transpose_b=True)

    init = tf.global_variables_initializer()

num_steps = 800

with tf.Session(graph=graph) as session:
    # We must initialize all variables before we use them.
    init.run()
    print('Initialized')

    average_loss = 0
    averages = []
    for step in range(num_steps):
        batch_inputs, batch_labels = generate_batch(batch_size, 2)
        feed_dict = {train_inputs: batch_inputs, train_labels: batch_labels}
        _, loss_val = session.run([optimizer, loss], feed_dict=feed_dict)
        average_loss += loss_val
        if step % 200 == 199:
            averages.append(average_loss / 200)
            average_loss = 0

    sim = similarity.eval()
    together = 0
    for i in range(vocabulary_size):
        nearest = (-sim[i, :]).argsort()[1:4]
        words_near = [reverse_dictionary[k] for k in nearest]
        topic = TOPICS[0] if reverse_dictionary[i] in TOPICS[0] else TOPICS[1]
        together += sum(word in topic for word in words_near)
    final_embeddings = normalized_embeddings.eval()

print("shape", final_embeddings.shape, "loss fell", averages[-1] < averages[0])
print("result neighbours of the same topic: %s" % ("most" if together >= 20 else together))
