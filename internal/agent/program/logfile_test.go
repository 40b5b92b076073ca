package program

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogKeepsItsBeginningAndItsEnd(t *testing.T) {
	line := func(i int) string { return fmt.Sprintf("%063d\n", i) }
	const linesOfHead, linesOfTail = logHead / 64, logTail / 64
	for _, lines := range []int{1, linesOfHead - 1, linesOfHead, linesOfHead + 1, linesOfHead + linesOfTail, linesOfHead + linesOfTail + 1, 5 * linesOfHead} {
		path := filepath.Join(t.TempDir(), "log")
		l := &logFile{path: path}
		var all bytes.Buffer
		// Writes of all sizes, across every border.
		for i := range lines {
			all.WriteString(line(i))
		}
		for chunk, rest := 1, all.Bytes(); len(rest) > 0; chunk = chunk*3%10007 + 1 {
			n := min(chunk, len(rest))
			if _, err := l.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		want := all.String()
		if all.Len() > logHead+logTail {
			want = fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", want[:logHead], all.Len()-logHead-logTail, want[all.Len()-logTail:])
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(data); got != want {
			t.Errorf("%d lines: got %d bytes, want %d", lines, len(got), len(want))
		}
		if !bytes.HasSuffix(l.last, []byte(line(lines-1))) || len(l.last) > 2*logTail {
			t.Errorf("%d lines: the tail has %d bytes", lines, len(l.last))
		}
	}
}

func TestLogThatIsEmptyLeavesNoFile(t *testing.T) {
	l := &logFile{path: filepath.Join(t.TempDir(), "log")}
	if _, err := l.Write(nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.path); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

func TestTailIsCleaned(t *testing.T) {
	long := strings.Repeat("0123456789\n", 1000)
	for text, want := range map[string]string{
		"":                              "",
		"\x1b[31mred\x1b[0m \x1b[1;2Kx": "red x",
		"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b(B": "alink",
		"\u009b31mc1":                    "c1",
		"one\r\ntwo\rthree\x00\x08\x7f":  "one\ntwo\nthree",
		"a\tb\n":                         "a\tb",
		"bad \xff byte":                  "bad \uFFFD byte",
		"user\u202etxt.exe\u2066":        "usertxt.exe",
		"lone escape \x1b":               "lone escape",
		long:                             strings.TrimSpace(long[len(long)-TailBytes/11*11:]),
		strings.Repeat("x", 3*TailBytes): strings.Repeat("x", TailBytes),
	} {
		if got := CleanTail([]byte(text)); got != want {
			t.Errorf("%.40q: got %.80q, want %.80q", text, got, want)
		}
	}
}
