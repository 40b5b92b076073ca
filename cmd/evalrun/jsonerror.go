package main

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
)

// errorJSON is what --json prints when a command ends with an error and has printed nothing else,
// as in schemas/error.schema.json.
type errorJSON struct {
	Error struct {
		// ExitCode is the exit code of the process.
		ExitCode int `json:"exitCode"`
		// Message is the text on stderr, without the name of the program.
		Message string `json:"message"`
		// Problems are the errors in files, if there are any.
		Problems []problemJSON `json:"problems,omitempty"`
	} `json:"error"`
}

// problemJSON is a place in a file, and the error there.
type problemJSON struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

func newErrorJSON(err error, text string) (out errorJSON) {
	out.Error.ExitCode, out.Error.Message = codeOf(err), text
	var several input.Problems
	var one input.Problem
	if !errors.As(err, &several) && errors.As(err, &one) {
		several = input.Problems{one}
	}
	for _, p := range several {
		out.Error.Problems = append(out.Error.Problems,
			problemJSON{redact.Line(p.File), p.Line, p.Column, redact.Line(p.Key), redact.Line(p.Message)})
	}
	return out
}

// wantsJSON reports whether a command line has --json. It looks at the words, because an error may
// come before the flag.
func wantsJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.ContainsFunc(args, func(word string) bool {
		return word == "--json" || strings.HasPrefix(word, "--json=") && word != "--json=false"
	})
}

// watchedWriter knows whether anything was written.
type watchedWriter struct {
	w       io.Writer
	written bool
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	w.written = w.written || len(p) > 0
	return w.w.Write(p)
}
