package program

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
)

const (
	// logHead and logTail say how much of the beginning and of the end of a log is kept.
	logHead = 512 << 10
	logTail = 512 << 10
	// TailBytes is how much of stderr is put into the message of a fault.
	TailBytes = 2 << 10
)

// Log keeps the output of a program on one of its streams in a file, redacted.
type Log struct {
	file *logFile
	// redacted writes into file; nil if there is no redaction.
	redacted io.WriteCloser
}

// OpenLog opens a log. No file is made before there is something to write.
func OpenLog(path string, redact func(io.Writer) io.WriteCloser) *Log {
	l := &Log{file: &logFile{path: path}}
	if redact != nil {
		l.redacted = redact(l.file)
	}
	return l
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	if l.redacted != nil {
		return l.redacted.Write(p)
	}
	return l.file.Write(p)
}

// Close writes the output that the redaction holds back, and the end of the log.
func (l *Log) Close() error {
	if l.redacted == nil {
		return l.file.Close()
	}
	return errors.Join(l.redacted.Close(), l.file.Close())
}

// Tail returns the end of the log as a message can show it. The log must be closed.
func (l *Log) Tail() string { return CleanTail(l.file.last) }

// StderrTail returns the tail of a log of stderr, ready to be put after a message.
func (l *Log) StderrTail() string {
	if text := l.Tail(); text != "" {
		return "; stderr ends with:\n" + text
	}
	return ""
}

// logFile is a log that keeps its beginning and its end. The beginning is written at once, so that
// a log can be followed; the end is written when the log is closed. An empty log leaves no file.
type logFile struct {
	path string
	file *os.File
	// size is how much was written to the log. head is how much of it went to the file.
	size, head int64
	last       []byte // the end of the log, at least logTail of it
	err        error
}

func (l *logFile) Write(p []byte) (int, error) {
	if len(p) == 0 || l.err != nil {
		return len(p), l.err
	}
	if l.file == nil {
		if l.file, l.err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); l.err != nil {
			return 0, l.err
		}
	}
	if room := logHead - l.head; room > 0 {
		n, err := l.file.Write(p[:min(room, int64(len(p)))])
		l.head += int64(n)
		if l.err = err; err != nil {
			return n, err
		}
	}
	l.size += int64(len(p))
	if l.last = append(l.last, p...); len(l.last) > 2*logTail {
		l.last = append(l.last[:0], l.last[len(l.last)-logTail:]...)
	}
	return len(p), nil
}

// Close writes the end of the log.
func (l *logFile) Close() error {
	if l.file == nil {
		return l.err
	}
	if rest := l.size - l.head; rest > 0 && l.err == nil {
		if rest > logTail {
			_, l.err = fmt.Fprintf(l.file, "\n[… %d bytes left out …]\n", rest-logTail)
			rest = logTail
		}
		if l.err == nil {
			_, l.err = l.file.Write(l.last[int64(len(l.last))-rest:])
		}
	}
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	return l.err
}

// escape is a terminal escape sequence: CSI, OSC and the like up to their end, or two characters.
var escape = regexp.MustCompile(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]`)

// CleanTail returns the end of a text, up to tailBytes, in whole lines where that is possible,
// without terminal escapes and control characters.
func CleanTail(data []byte) string {
	if len(data) > TailBytes {
		data = data[len(data)-TailBytes:]
		if i := bytes.IndexByte(data, '\n'); i >= 0 && i < len(data)-1 {
			data = data[i+1:]
		}
	}
	s := strings.ToValidUTF8(string(data), "\uFFFD")
	s = escape.ReplaceAllString(s, "")
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	s = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || isBidi(r) {
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s)
}

// isBidi reports whether a character changes the direction of the following text, which can make a
// text look like another one.
func isBidi(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }
