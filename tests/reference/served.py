"""A test program that stays up and answers lines (`process_image serve`, `decode_media serve`): one word list a question."""
import os
import struct
import subprocess

BUILD = os.environ.get("MSO_BUILD", "build")


class Served:
    def __init__(self, program):
        self.process = subprocess.Popen([os.path.join(BUILD, program), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *words):
        """The bytes of the answer; RuntimeError with the program's message for an error."""
        self.process.stdin.write((" ".join(str(w) for w in words) + "\n").encode())
        self.process.stdin.flush()
        (size,) = struct.unpack("<q", self.process.stdout.read(8))
        if size < 0:
            (size,) = struct.unpack("<q", self.process.stdout.read(8))
            raise RuntimeError(self.process.stdout.read(size).decode())
        return self.process.stdout.read(size)
