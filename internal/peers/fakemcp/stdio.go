package fakemcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// StdioArgs are the arguments of StdioMain for a log and a marker.
func StdioArgs(logFile, marker string) []string { return []string{"-log", logFile, "-marker", marker} }

// NewStdioMarker makes a marker for a server on stdio.
func NewStdioMarker() string { return newMarker(Stdio) }

// StdioMain is a program: an MCP server on stdin and stdout, until stdin is closed or a signal
// comes.
func StdioMain(args []string) error {
	flags := flag.NewFlagSet("probe-stdio", flag.ContinueOnError)
	logFile := flags.String("log", "", "the file to which the log is appended")
	marker := flags.String("marker", "", "what the tool returns")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *logFile == "" || *marker == "" || flags.NArg() > 0 {
		return fmt.Errorf("expected -log FILE -marker TEXT, got %q", args)
	}
	file, err := os.OpenFile(*logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l := &fileLog{file: file}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	// A read of stdin that blocks in the system can hold up Go's garbage collector for a minute. For a
	// pipe that does not block, the runtime waits by other means (seen with Go 1.26.8, about once in
	// 30,000 calls).
	if err := syscall.SetNonblock(syscall.Stdin, true); err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	transport := &mcp.IOTransport{Reader: os.NewFile(uintptr(syscall.Stdin), "stdin"), Writer: os.Stdout}
	l.add(Entry{Time: time.Now(), Transport: Stdio, Method: MethodStart})
	err = served{transport: Stdio, marker: *marker, log: l.add, done: ctx.Done()}.server().Run(ctx, transport)
	end := Entry{Time: time.Now(), Transport: Stdio, Method: MethodEnd}
	switch {
	case ctx.Err() != nil:
		end.Error, err = context.Cause(ctx).Error(), nil
	case err != nil:
		end.Error = err.Error()
	}
	l.add(end)
	return errors.Join(err, l.close())
}

// fileLog is a log in a file, one JSON object a line. Each is written at once, because the process
// may be killed.
type fileLog struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

func (l *fileLog) add(e Entry) {
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	l.err = errors.Join(l.err, err)
}

func (l *fileLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.file.Close())
}

// ReadLog reads the log of a server on stdio. It leaves out an incomplete last line.
func ReadLog(path string) ([]Entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for dec := json.NewDecoder(bytes.NewReader(data[:bytes.LastIndexByte(data, '\n')+1])); ; {
		var e Entry
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return entries, nil
		case err != nil:
			return nil, fmt.Errorf("%s: entry %d: %w", path, len(entries)+1, err)
		}
		entries = append(entries, e)
	}
}
