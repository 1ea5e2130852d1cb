"""``asyncmon.tf1.port``: the entry point, module-level code, threads, the import of ``asyncio``."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from asyncmon.tf1.port.porting import port
from tests import forked


def ported(text: str) -> str:
    once = port(textwrap.dedent(text).encode()).source
    assert port(once).source == once
    return once.decode()


def test_a_script_gets_a_main() -> None:
    assert ported("""\
        '''A script.'''
        from __future__ import print_function
        # for arrays
        import time
        import tensorflow as tf

        x = tf.placeholder(tf.float32)
        sess = tf.Session()
        count = 0

        # It begins here.
        sess.run(tf.global_variables_initializer())

        def bump():
            global count
            count += 1

        for i in range(3):
            print(sess.run(x, {x: i}))
            time.sleep(1)

            bump()
        # The end.
        """) == textwrap.dedent("""\
        '''A script.'''
        from __future__ import print_function
        # for arrays
        import asyncio
        import time
        import asyncmon.tf1 as tf

        x = tf.placeholder(tf.float32)
        sess = tf.Session()
        count = 0


        # It begins here.
        async def main():
            global bump, i
            await sess.run(tf.global_variables_initializer())

            def bump():
                global count
                count += 1

            for i in range(3):
                print(await sess.run(x, {x: i}))
                await asyncio.sleep(1)

                bump()


        asyncio.run(main())
        # The end.
        """)


def test_all_names_of_main_stay_names_of_the_module() -> None:
    after = ported("""\
        import tensorflow as tf

        if __name__ == "__main__":
            sess = tf.Session()
            step: int = 1
            for i, (a, *b) in enumerate([]):
                import os.path as p, json
                with open(p) as f: [k for k in f if (w := k)]
            class C: x = 1
            def g(): y = 1
            del step
            sess.run(1)
        """)
    assert "async def main():\n    global C, a, b, f, g, i, json, p, sess, step, w\n    sess =" in after
    assert "    step = 1\n" in after
    assert after.endswith('if __name__ == "__main__":\n    asyncio.run(main())\n')


SCOPE = {
    "globals in a condition": (
        "for i in range(3):\n    r = sess.run(x, {x: i})\n"
        "    if 'total' not in globals(): total = r\n    else: total = total * 0.5 + r\nprint(total)",
        "2.5",
    ),
    "a guard": (
        "def report(): return 'lr' in globals(), globals().get('lr')\n"
        "if __name__ == '__main__':\n    lr = 0.5\n    print(float(sess.run(x, {x: lr})), report())",
        "0.5 (True, 0.5)",
    ),
    "a class body": (
        "n = int(sess.run(x, {x: 3}))\nclass Config:\n    n = n\n    m = n + 1\n"
        "print(Config.n, Config.m)",
        "3 4",
    ),
    "del": (
        "tmp = [1]\na = sess.run(x, {x: 1})\ndel tmp\nprint(float(a), 'tmp' in globals())",
        "1.0 False",
    ),
    "pickle": (
        "lr = sess.run(x, {x: 0.5})\nclass Box(object):\n    def __init__(self): self.v = lr\n"
        "def f(a): return a + 1\nimport pickle\n"
        "print(float(pickle.loads(pickle.dumps(Box())).v), pickle.loads(pickle.dumps(f))(1))",
        "0.5 2",
    ),
    "exec, import * and annotations": (
        "n: int = 3\nrows = [float(sess.run(x, {x: k})) for k in range(n)]\n"
        "from math import *\nexec('z = 4')\nprint(rows, z, sqrt(4), eval('n'))",
        "[0.0, 1.0, 2.0] 4 2.0 3",
    ),
    "the module by its names": (
        "lr = float(sess.run(x, {x: 2}))\nimport sys\nfrom __main__ import lr as again\n"
        "print(again, sys.modules['__main__'].lr, 'lr' in dir(), locals()['lr'], vars()['lr'])",
        "2.0 2.0 True 2.0 2.0",
    ),
    "an exception and a pool": (
        "try:\n    sess.run('no:0')\nexcept ValueError as error:\n    kept = error\n"
        "import multiprocessing\ndef double(a): return 2 * a\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "    print(pool.map(double, [1, 2]))",
        "[2, 4]",
    ),
}


@pytest.mark.parametrize("name", SCOPE)
def test_the_module_keeps_its_scope(name: str, tmp_path: Path) -> None:
    text, shown = SCOPE[name]
    head = "import tensorflow as tf\nx = tf.placeholder(tf.float32)\nsess = tf.Session()\n"
    made = port(f"{head}{text}\n")
    assert made.notes == ()
    (tmp_path / "new.py").write_bytes(made.source)
    ran = forked.run(tmp_path / "new.py", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, f"{shown}\n"), ran.stderr


def test_a_name_that_is_taken_is_not_used_for_main() -> None:
    after = ported("import tensorflow as tf\ndef main(): pass\ntf.Session().run(1)\nmain()\n")
    assert "async def async_main():\n    await tf.Session().run(1)\n    main()\n" in after


def test_app_run_takes_an_async_main() -> None:
    text = """\
        import tensorflow as tf

        def main(argv):
            with tf.Session() as sess:
                sess.run(1)

        if __name__ == "__main__":
            tf.app.run(main)
        """
    assert ported(text).endswith('\nif __name__ == "__main__":\n    tf.app.run(main)\n')
    text = text.replace(
        "import tensorflow as tf", "import tensorflow as tf\n        from absl import app"
    )
    after = ported(text.replace("        tf.app", "        app"))
    assert after.endswith("    tf.app.run(main)\n")


def test_exit_status_of_an_async_main() -> None:
    after = ported("""\
        import sys
        import tensorflow as tf

        def main(argv):
            return tf.Session().run(1)

        if __name__ == "__main__":
            sys.exit(main(sys.argv))
        """)
    assert after.endswith("    sys.exit(asyncio.run(main(sys.argv)))\n")
    assert after.startswith("import asyncio\nimport sys\n")


def test_threads_that_run_a_session_become_tasks() -> None:
    after = ported("""\
        import threading
        import tensorflow as tf

        def work(coord, sess, n):
            while not coord.should_stop():
                sess.run(n)

        def plain(coord):
            coord.request_stop()

        def main(sess):
            coord = tf.train.Coordinator()
            threads = [threading.Thread(target=work, args=(coord, sess, i)) for i in range(2)]
            threads.append(threading.Thread(target=plain, args=[coord], name="p"))
            threads.append(threading.Thread(target=sess.run, args=(1,), kwargs={"feed_dict": {}}))
            for t in threads:
                t.daemon = True
                t.start()
            # now
            coord.join(threads=threads)
            threads[0].join()
            threads[1].join(3)
            coord.register_thread(threads[0])
        """)
    start = after.index("    coord = tf")
    assert textwrap.dedent(after[start:]) == textwrap.dedent("""\
        coord = tf.train.Coordinator()
        threads = [asyncio.create_task(work(coord, sess, i)) for i in range(2)]
        threads.append(asyncio.create_task(asyncio.to_thread(plain, coord), name="p"))
        threads.append(asyncio.create_task(sess.run(1, **{"feed_dict": {}})))
        # now
        await coord.join(tasks=threads)
        await threads[0]
        await asyncio.wait([threads[1]], timeout=3)
        coord.register_task(threads[0])
        """)


def test_queue_runners_give_tasks() -> None:
    after = ported("""\
        import tensorflow as tf

        def main(sess, queue, enqueue):
            coord = tf.train.Coordinator()
            runner = tf.train.QueueRunner(queue, [enqueue])
            threads = runner.create_threads(sess, coord=coord, daemon=True, start=False)
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            tf.train.LooperThread.loop(coord, 60, print)
        """)
    assert "threads = runner.create_tasks(sess, coord=coord, start=False)" in after
    assert "        t.start()\n    for t in threads:\n        await t\n" in after
    assert "tf.train.LooperTask.loop(coord, 60, print)" in after


def test_asyncio_is_imported_before_a_function_too() -> None:
    after = ported("""\
        def f():
            import time
            import tensorflow as tf
            tf.Session().run(1)
            time.sleep(1)
        """)
    assert after.startswith("import asyncio\nasync def f")
    assert (
        "    import asyncmon.tf1 as tf\n    await tf.Session().run(1)\n    await asyncio.sleep(1)"
        in after
    )


def test_a_loop_variable_of_main_is_a_global() -> None:
    after = ported("""
        import tensorflow as tf
        for i in range(2):
            print(i)
        with tf.Session() as sess:
            for i in range(2):
                sess.run(i)
        """)
    assert "    global i, sess\n" in after


def test_a_name_that_main_reads_before_it_binds_it_is_a_global() -> None:
    assert "global n" in ported("""
        import tensorflow as tf
        n = 1
        with tf.Session() as sess:
            n = n + sess.run(1)
        """)


def test_a_lambda_without_parameters_is_called_as_the_target_of_a_thread() -> None:
    after = ported("""
        import tensorflow as tf
        import threading

        def f(sess, x):
            sess.run(x)

        def main(sess):
            a = threading.Thread(target=lambda: f(sess, 1))
            b = threading.Thread(target=lambda i=2: f(sess, i))
            a.start()
        """)
    assert "    a = asyncio.create_task(f(sess, 1))\n" in after
    assert "    b = asyncio.create_task((lambda i=2: f(sess, i))())\n" in after


def test_a_thread_that_stays_one_is_joined_in_a_worker() -> None:
    after = ported("""
        import tensorflow as tf
        import threading

        def main(sess, plain):
            a = threading.Thread(target=plain)
            a.start()
            sess.run(1)
            a.join(3)
        """)
    assert after.endswith("    await sess.run(1)\n    await asyncio.to_thread(a.join, 3)\n")
