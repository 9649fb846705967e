"""The screen of vmmtop, in a pseudo terminal that understands what a VT100 does."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
import unittest

from support import TOP, TopTest

ROWS, COLUMNS = 30, 130
ESCAPE = re.compile(r"\x1b(?:\[([?0-9;]*)([A-Za-z])|[()][A-Za-z0-9]|[=>78HM])")


class Terminal:
    """Runs a program; `screen()` has the rows that it shows."""

    def __init__(self, arguments):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="vt100", LC_ALL="C.UTF-8", LINES=str(ROWS), COLUMNS=str(COLUMNS))
            os.execv(arguments[0], arguments)
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.cells = [[" "] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0
        self.top, self.bottom = 0, ROWS - 1  # the rows that scroll
        self.text = ""
        self.status = None

    def send(self, keys):
        os.write(self.file, keys.encode())

    def read(self, seconds):
        """Takes what the program prints in so many seconds, or until it ends."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not select.select([self.file], [], [], max(0, end - time.monotonic()))[0]:
                break
            try:
                data = os.read(self.file, 65536)
            except OSError:
                break
            self.text += data.decode(errors="replace")
        self.interpret()

    def interpret(self):
        while self.text:
            match = ESCAPE.match(self.text)
            if match and match.group(0) == "\x1bM" and self.row == self.top:
                self.cells[self.top:self.bottom + 1] = [[" "] * COLUMNS] + self.cells[self.top:self.bottom]
                self.text = self.text[match.end():]
            elif match and match.group(2) is None:
                self.text = self.text[match.end():]
            elif match:
                self.escape(match.group(1) or "", match.group(2))
                self.text = self.text[match.end():]
            elif self.text[0] == "\x1b":
                return  # the rest of the sequence has not come yet
            else:
                self.character(self.text[0])
                self.text = self.text[1:]

    def character(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n" and self.row == self.bottom:
            self.cells[self.top:self.bottom + 1] = self.cells[self.top + 1:self.bottom + 1] + [[" "] * COLUMNS]
        elif character == "\n":
            self.row = min(self.row + 1, ROWS - 1)
        elif character == "\t":
            self.column = min((self.column // 8 + 1) * 8, COLUMNS - 1)
        elif character == "\b":
            self.column = max(self.column - 1, 0)
        elif character >= " " and self.column < COLUMNS:
            self.cells[self.row][self.column] = character
            self.column += 1

    def escape(self, values, command):
        numbers = [int(number) for number in re.findall(r"\d+", values)]
        first = numbers[0] if numbers else 0
        if command in "Hf":
            self.row = min(max(first, 1), ROWS) - 1
            self.column = min(numbers[1] if len(numbers) > 1 else 1, COLUMNS) - 1
        elif command == "r":
            self.top, self.bottom = (numbers[0] - 1, numbers[1] - 1) if len(numbers) == 2 else (0, ROWS - 1)
            self.row = self.column = 0
        elif command == "K" and first == 0:
            self.cells[self.row][self.column:] = [" "] * (COLUMNS - self.column)
        elif command == "K" and first == 1:
            self.cells[self.row][:self.column + 1] = [" "] * (self.column + 1)
        elif command == "J":
            self.cells[self.row][self.column:] = [" "] * (COLUMNS - self.column)
            for row in range(self.row + 1, ROWS):
                self.cells[row] = [" "] * COLUMNS
        elif command == "A":
            self.row = max(self.row - max(first, 1), 0)
        elif command == "B":
            self.row = min(self.row + max(first, 1), ROWS - 1)
        elif command == "C":
            self.column = min(self.column + max(first, 1), COLUMNS - 1)
        elif command == "D":
            self.column = max(self.column - max(first, 1), 0)
        elif command not in "mhl":
            raise AssertionError("the terminal does not know %r" % command)

    def screen(self):
        return ["".join(row).rstrip() for row in self.cells]

    def wait(self, seconds=20):
        """The exit status."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
                return self.status
            self.read(0.05)
        raise AssertionError("the program does not end")

    def close(self):
        if self.status is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.file)


class Screen(TopTest):
    def start(self, *arguments):
        terminal = Terminal([TOP, "--dir", self.folder, *arguments])
        self.addCleanup(terminal.close)
        return terminal

    def shows(self, terminal, part, seconds=20):
        """Waits until a row has the text; returns the screen."""
        end = time.monotonic() + seconds
        while not any(part in row for row in terminal.screen()):
            self.assertLess(time.monotonic(), end, "\n".join(terminal.screen()))
            terminal.read(0.1)
        return terminal.screen()

    def test_processes_come_and_go(self):
        terminal = self.start()
        self.shows(terminal, "No process publishes in")
        worker = self.worker()
        screen = self.shows(terminal, "%8d vmmtop_worker" % worker.pid)
        self.assertTrue(screen[0].lstrip().startswith("PID PROGRAM"), screen[0])
        self.assertIn("q quit", screen[ROWS - 1])
        worker.do("alloc 0 104857600 0")
        self.shows(terminal, "100 MiB")
        worker.kill()
        self.shows(terminal, "removed: 1 left by processes")
        self.shows(terminal, "No process publishes in")
        terminal.send("q")
        self.assertEqual(terminal.wait(), 0)

    def test_one_process_in_depth_and_back(self):
        workers = sorted([self.worker(), self.worker()], key=lambda worker: worker.pid)
        workers[1].do("pool weights", "alloc 1 5242880 2")
        terminal = self.start()
        self.shows(terminal, "%8d vmmtop_worker" % workers[1].pid)
        terminal.send("\x1bOB")  # the arrow down of a VT100
        terminal.read(0.3)
        terminal.send("\n")
        self.shows(terminal, " 0x20 ")
        terminal.read(0.3)  # the rest of its row
        screen = self.shows(terminal, "weights")
        self.assertIn("%d vmmtop_worker" % workers[1].pid, screen[0])
        self.assertTrue(any(" 0x20 " in row and "weights" in row for row in screen), screen)
        terminal.send("\x1b")
        self.shows(terminal, "PID PROGRAM")
        terminal.send("\n")  # the selection stays
        self.shows(terminal, "weights")
        workers[1].do("end")
        self.shows(terminal, "Process %d does not publish." % workers[1].pid)
        terminal.send("q")
        self.assertEqual(terminal.wait(), 0)

    def test_long_lists_scroll(self):
        worker = self.worker()
        worker.do(*("pool number%d" % number for number in range(14)))
        worker.do(*("alloc %d 5000000 %d" % (pool, pool + 1) for pool in range(15)))
        terminal = self.start(str(worker.pid))
        first = self.shows(terminal, "number13")[0]
        self.assertIn("vmmtop_worker", first)
        terminal.send("\x1bOB" * 5)
        self.shows(terminal, "0x", 20)
        self.until(lambda: (terminal.read(0.1), terminal.screen()[0])[1], lambda row: row != first)
        terminal.send("\x1bOA" * 9)
        self.until(lambda: (terminal.read(0.1), terminal.screen()[0])[1], lambda row: "vmmtop_worker" in row)
        terminal.send("q")
        self.assertEqual(terminal.wait(), 0)

    def test_the_selection_stays_on_the_screen(self):
        workers = sorted((self.worker() for _ in range(ROWS + 4)), key=lambda worker: worker.pid)
        terminal = self.start()
        first, last = ("%8d vmmtop_worker" % workers[i].pid for i in (0, -1))
        self.shows(terminal, first)
        terminal.send("\x1bOB" * (ROWS + 9))
        screen = self.shows(terminal, last)
        self.assertTrue(screen[0].lstrip().startswith("PID PROGRAM"), screen[0])
        self.assertNotIn(first, screen[1])
        terminal.send("\n")
        self.shows(terminal, "%d vmmtop_worker   libvmmcache" % workers[-1].pid)
        terminal.send("\x1b")
        self.shows(terminal, last)
        for worker in workers[1:]:
            worker.kill()
        self.shows(terminal, first)
        terminal.send("\n")  # what was selected has ended
        self.shows(terminal, "%d vmmtop_worker   libvmmcache" % workers[0].pid)
        terminal.send("\x1bOB" * 50)  # there is nothing to scroll to
        terminal.read(0.5)
        self.shows(terminal, "%d vmmtop_worker   libvmmcache" % workers[0].pid)

    def test_without_input_it_does_not_spin(self):
        terminal = Terminal(["/bin/sh", "-c", "exec %s --dir %s < /dev/null" % (TOP, self.folder)])
        self.addCleanup(terminal.close)
        self.shows(terminal, "No process publishes in")
        time.sleep(2)
        with open("/proc/%d/stat" % terminal.pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        self.assertLess(int(fields[11]) + int(fields[12]), 50)  # hundredths of a second

    def test_terminal_that_is_unknown(self):
        terminal = Terminal(["/bin/sh", "-c", "TERM=none-such exec %s --dir %s" % (TOP, self.folder)])
        self.addCleanup(terminal.close)
        self.assertEqual(terminal.wait(), 2)


if __name__ == "__main__":
    unittest.main()
