package jsonrpc

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// What is one message, and what is none.
func TestParse(t *testing.T) {
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`: true,
		` {"jsonrpc":"2.0","method":"m"} `:                  true,
		`{"jsonrpc":"2.0","id":1,"result":{}}`:              true,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`: true,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1}}`:    true,
		`{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`:    false,
		`{"jsonrpc":"2.0","id":1}`:                          false,
		`{"jsonrpc":"2.0","result":{}}`:                     false,
		`{"jsonrpc":"1.0","method":"m"}`:                    false,
		`{"jsonrpc":"2.0","method":""}`:                     false,
		`{"jsonrpc":"2.0","method":7}`:                      false,
		`{"jsonrpc":"2.0","method":"m"} {}`:                 false,
		`{"jsonrpc":"2.0","method":"m","params":{]}}`:       false,
		`[]`: false,
		``:   false,
	} {
		m, err := Parse([]byte(text))
		if (err == nil) != want || err != nil && !errors.Is(err, ErrNoMessage) {
			t.Errorf("%s: %v", text, err)
		}
		if again, err := Parse(m.Encode()); want && (err != nil || string(again.ID) != string(m.ID) || again.Method != m.Method) {
			t.Errorf("%s is written as %s", text, m.Encode())
		}
	}
}

// A line may be as long as the limit, and its end does not count.
func TestReader(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	lines := NewReader(strings.NewReader("a\r\n\n"+long+"\nlast"), len(long))
	for _, want := range []string{"a", "", long, "last"} {
		if line, err := lines.Next(); err != nil || string(line) != want {
			t.Fatalf("got %.20q, %v; want %.20q", line, err, want)
		}
	}
	if _, err := lines.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := NewReader(strings.NewReader(long+"\n"), len(long)-1).Next(); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
}
