package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// maxRow is the greatest length of a row in its file, in bytes. A quote that is never closed would
// otherwise take the rest of the file for one cell.
const maxRow = 16 << 20

// formats are the endings of the files that can be read.
var formats = []string{".csv", ".tsv", ".jsonl", ".json", ".parquet"}

// file is an open data set.
type file struct {
	name   string
	file   *os.File
	digest hash.Hash
	// columns are the names of the columns, in their order. They are nil for JSON and JSON Lines, where
	// each row has its own.
	columns []string
	// line is the line on which the row begins that was read last.
	line int
	// halves are the names of a Parquet file's columns of 16-bit numbers.
	halves map[string]bool
	// uses says which columns of a Parquet file are wanted; nil means all.
	uses func(column string) bool
	// next returns the next row as an object, and after the last one io.EOF. After an error that is an
	// [input.Problem] it goes on with the rows that follow.
	next func() (*input.Node, error)
}

// known reports whether a file of this name can be read.
func known(name string) bool { return opener(name) != nil }

func opener(name string) func(*file) error {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv":
		return func(f *file) error { return f.openCSV(',') }
	case ".tsv", ".tab":
		return func(f *file) error { return f.openCSV('\t') }
	case ".jsonl", ".ndjson":
		return (*file).openLines
	case ".json":
		return (*file).openArray
	case ".parquet":
		return (*file).openParquet
	}
	return nil
}

// open opens a data set, which the caller closes; the name tells its format. A problem of its
// content is an [input.Problem].
func open(name string) (*file, error) {
	begin := opener(name)
	if begin == nil {
		return nil, fmt.Errorf("%s: expected a file whose name ends in one of %s", name, strings.Join(formats, ", "))
	}
	opened, err := input.Open(name)
	if err != nil {
		return nil, input.Unreadable(name, err)
	}
	f := &file{name: name, file: opened, digest: sha256.New()}
	if err := begin(f); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *file) close() { _ = f.file.Close() } // only read

// sum returns the digest of the whole file. It is known once next has returned io.EOF.
func (f *file) sum() string { return "sha256:" + hex.EncodeToString(f.digest.Sum(nil)) }

// bytes returns the content of a text file, which goes into the digest as it is read.
func (f *file) bytes() *bounded {
	return &bounded{r: io.TeeReader(f.file, f.digest)}
}

func (f *file) problem(line, column int, format string, args ...any) input.Problem {
	return input.Problem{File: f.name, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

// last returns a problem after which nothing more can be read.
func (f *file) last(p input.Problem) error {
	f.next = func() (*input.Node, error) { return nil, io.EOF }
	return p
}

// errLong is the error of a row that is longer than maxRow.
var errLong = errors.New("longer than a row may be")

// bounded is a reader that fails when more is read for one row than a row may have.
type bounded struct {
	r    io.Reader
	left int
}

// row begins a row. A reader that reads ahead has part of it already.
func (b *bounded) row() { b.left = maxRow }

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLong
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
