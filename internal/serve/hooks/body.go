package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// largeBody is how many bytes of a body are read without a slot. maxLarge is how many larger
	// bodies are in memory at once.
	largeBody = 1 << 20
	maxLarge  = 4
	// maxDepth is how deep a payload may nest.
	maxDepth = 512
)

var errBusy = errors.New("too many large bodies come at once; post it again")

// large has a slot for each large body that may be in memory.
type large chan struct{}

// turn is the slot of one request, once it needs one.
type turn struct {
	of    large
	taken bool
}

func (l large) turn() *turn { return &turn{of: l} }

// readAll reads a body, and waits for a slot as soon as it turns out to be large.
func (t *turn) readAll(ctx context.Context, body io.Reader) ([]byte, error) {
	start, err := io.ReadAll(io.LimitReader(body, largeBody))
	if err != nil || len(start) < largeBody {
		return start, err
	}
	select {
	case t.of <- struct{}{}:
		t.taken = true
	case <-ctx.Done():
		return nil, errBusy
	}
	all := bytes.NewBuffer(start)
	_, err = all.ReadFrom(body)
	return all.Bytes(), err
}

// end returns the slot.
func (t *turn) end() {
	if t.taken {
		<-t.of
	}
}

// compact checks that a text is one JSON document in which no object has a key twice, and removes
// its white space. It makes no tree, which would be many times as large.
func compact(body []byte) (json.RawMessage, error) {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if !utf8.Valid(body) {
		return nil, errors.New("expected UTF-8 text")
	}
	// encoding/json accepts an escape of half a surrogate pair, too.
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowInvalidUTF8(true))
	for {
		switch _, err := dec.ReadToken(); {
		case err != nil:
			return nil, errors.New(strings.TrimPrefix(err.Error(), "jsontext: "))
		case dec.StackDepth() > maxDepth:
			return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
		}
		if dec.StackDepth() == 0 {
			break
		}
	}
	if len(bytes.TrimSpace(body[dec.InputOffset():])) > 0 {
		return nil, errors.New("more text follows it")
	}
	out := jsontext.Value(body)
	err := out.Compact()
	return json.RawMessage(out), err
}
