package image

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// shownLines is how many lines of a log a fault shows.
const shownLines = 30

// maxShownLine is how much of one line is shown.
const maxShownLine = 500

// buildLog is the file with the whole output of a build. It reports each step as progress, and
// remembers the last lines. Its methods can be called concurrently.
type buildLog struct {
	path     string
	progress func(string)

	mu   sync.Mutex
	f    *os.File
	line []byte
	last []string
}

func newBuildLog(path string, progress func(string)) (*buildLog, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	return &buildLog{path: path, progress: progress, f: f}, err
}

// step matches the beginning of the lines in which podman, buildah and docker report the next
// instruction.
var step = regexp.MustCompile(`(?i)^step \d+(/\d+)? ?:`)

// Write takes the output of the builder, in pieces.
func (l *buildLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := p
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.line = append(l.line, line[:min(len(line), max(0, maxShownLine-len(l.line)))]...)
		if !whole {
			break
		}
		l.end()
		rest = after
	}
	return l.f.Write(p)
}

func (l *buildLog) end() {
	text := strings.TrimRight(string(l.line), "\r")
	l.line = l.line[:0]
	if l.last = append(l.last, text); len(l.last) > shownLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	if step.MatchString(text) {
		l.progress(text)
	}
}

// tail returns the last lines.
func (l *buildLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) > 0 {
		l.end()
	}
	return strings.Join(l.last, "\n")
}

func (l *buildLog) close() {
	_ = l.f.Close() // an incomplete log harms nobody
}
