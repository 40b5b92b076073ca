package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/jsonrpc"
)

func TestClientReadsEvents(t *testing.T) {
	type event struct{ name, data, id string }
	tests := []struct {
		name, stream string
		want         []event
		retry        time.Duration
	}{
		{"one", "data: a\n\n", []event{{"", "a", ""}}, -1},
		{"all fields", "event: message\nid: 7\nretry: 30\ndata:a\n\n", []event{{"message", "a", "7"}}, 30 * time.Millisecond},
		{"CR LF and CR", "data: a\r\nid: 1\r\n\r\ndata: b\r\rdata: c\n\n", []event{{"", "a", "1"}, {"", "b", "1"}, {"", "c", "1"}}, -1},
		{"lines", "data: a\ndata:  b\ndata:\n\n", []event{{"", "a\n b\n", ""}}, -1},
		{"a mark, a comment and unknown fields", "\xEF\xBB\xBF: hi\n\nwhat: ever\nnothing\ndata: a\n\n", []event{{"", "a", ""}}, -1},
		{"an event without data", "id: 1\nevent: x\n\ndata: a\n\n", []event{{"", "a", "1"}}, -1},
		{"an id that is none", "id: a\x00b\nretry: soon\ndata: a\n\nid\ndata: b\n\n", []event{{"", "a", ""}, {"", "b", ""}}, -1},
		{"cut", "id: 1\ndata: a\n\nid: 2\ndata: b\n", []event{{"", "a", "1"}}, -1},
		{"a retry without end", "retry: 9223372036854775807\n\n", nil, time.Hour},
		{"nothing", "", nil, -1},
	}
	for _, test := range tests {
		for _, whole := range []bool{true, false} {
			var r io.Reader = strings.NewReader(test.stream)
			if !whole {
				r = iotest.OneByteReader(r)
			}
			s := newClientEvents(100)
			s.from(r)
			var got []event
			for {
				e, err := s.next()
				if err != nil {
					if !errors.Is(err, io.EOF) {
						t.Errorf("%s: %v", test.name, err)
					}
					break
				}
				got = append(got, event{e.name, string(e.data), s.id})
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(event{})); diff != "" || s.retry != test.retry {
				t.Errorf("%s: retry %v, %s", test.name, s.retry, diff)
			}
		}
	}
}

func FuzzClientEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: a\r\ndata: b\r\r: c\nretry: 5\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		s := newClientEvents(50)
		s.from(strings.NewReader(string(stream)))
		for {
			e, err := s.next()
			if err != nil {
				return
			}
			if len(e.data) > 100 {
				t.Errorf("%d bytes of data", len(e.data))
			}
		}
	})
}

func FuzzClientReceive(f *testing.F) {
	f.Add([]byte(`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"ping","id":null}]`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"_meta":7}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`))
	f.Add([]byte(`{"id":1,"error":[]}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		c := newClient(ClientOptions{Notified: func(string, json.RawMessage) {}}, Legacy, 0)
		c.link = &stdioLink{c: c, out: jsonrpc.NewWriter(io.Discard, jsonrpc.WriterOptions{Spawn: c.life.spawn})}
		p, err := c.begin(context.Background(), Call{Method: MethodListen, Params: json.RawMessage(`{"_meta":{"progressToken":1}}`)})
		if err != nil {
			panic(err)
		}
		c.receiver.receive(nil, bytes.Clone(text))
		c.receiver.receive(p, text)
		c.life.cancel(errClientClosed)
		c.finish(p)
		c.life.wait()
	})
}
