package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/evalrun/evalrun/internal/input"
)

// maxTOML bounds a document. Published tasks have a few kilobytes.
const maxTOML = 256 << 10

// parseTOML reads a TOML document into the tree that package input makes of JSON and YAML. Whole
// numbers keep their value, floats their literal; values that JSON does not have (dates, inf, nan)
// are strings. The error is an [input.Problem].
//
// The decoder checks the document and gives its values, but not their places. So the places are
// looked up first, which also refuses documents that nest too deep for the decoder, and then the
// values are filled in.
func parseTOML(file string, data []byte) (*input.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(data) > maxTOML {
		return nil, input.Problem{File: file, Message: fmt.Sprintf("larger than %d bytes", maxTOML)}
	}
	x := newTOMLIndex(file, data)
	if !utf8.Valid(data) { // the decoder takes UTF-16's byte order mark
		return nil, x.notUTF8()
	}
	indexErr := x.document()
	var p input.Problem
	if errors.As(indexErr, &p) {
		return nil, p
	}
	var values map[string]any
	if err := toml.Unmarshal(data, &values); err != nil {
		return nil, x.syntax(err)
	}
	if indexErr == nil {
		indexErr = x.fill(x.root, values)
	}
	if indexErr != nil { // it does not happen: FuzzTOML
		return nil, x.problem(x.at, "evalrun cannot follow this document; write what stands here in a simpler form")
	}
	return x.root, nil
}

// fill gives a tree the values of the decoder.
func (x *tomlIndex) fill(n *input.Node, decoded any) error {
	switch v := decoded.(type) {
	case map[string]any:
		if n.Kind != input.Object || len(n.Members) != len(v) {
			return errLost
		}
		for _, m := range n.Members {
			value, ok := v[m.Key]
			if !ok {
				return errLost
			}
			if err := x.fill(m.Value, value); err != nil {
				return err
			}
		}
		return nil
	case []map[string]any:
		return fillItems(x, n, v)
	case []any:
		return fillItems(x, n, v)
	}
	if n.Kind != input.String {
		return errLost
	}
	switch v := decoded.(type) {
	case string:
		n.Text = v
	case bool:
		n.Kind, n.Text = input.Bool, strconv.FormatBool(v)
	case int64:
		n.Kind, n.Text = input.Number, strconv.FormatInt(v, 10)
	case float64: // Text is the literal, as that of a date
		if !strings.HasSuffix(n.Text, "inf") && !strings.HasSuffix(n.Text, "nan") {
			n.Kind, n.Text = input.Number, strings.TrimPrefix(strings.ReplaceAll(n.Text, "_", ""), "+")
		}
	}
	return nil
}

func fillItems[T any](x *tomlIndex, n *input.Node, values []T) error {
	if n.Kind != input.Array || len(n.Items) != len(values) {
		return errLost
	}
	for i, value := range values {
		if err := x.fill(n.Items[i], value); err != nil {
			return err
		}
	}
	return nil
}

// syntax returns the decoder's error about a document that is not TOML.
func (x *tomlIndex) syntax(err error) input.Problem {
	var e toml.ParseError
	if !errors.As(err, &e) {
		return x.problem(0, "not valid TOML: "+strings.TrimPrefix(err.Error(), "toml: "))
	}
	return x.problem(min(max(e.Position.Start, 0), len(x.data)), "not valid TOML: "+e.Message)
}

// notUTF8 reports where a document has bytes that are no text.
func (x *tomlIndex) notUTF8() input.Problem {
	at := 0
	for at < len(x.data) {
		r, size := utf8.DecodeRune(x.data[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return x.problem(at, "not valid TOML: not UTF-8")
}
