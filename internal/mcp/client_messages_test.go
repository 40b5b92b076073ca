package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestClientPassesEverythingThroughByteForByte(t *testing.T) {
	const params = `{"zeta":1e400, "name":"t","_meta":{"traceparent":"00-1","n":9007199254740993},"arguments":{"b":9007199254740993,"a":"\u00e9<&>","a":1}}`
	const result = `{"structuredContent":{"n":9007199254740993, "x":1.0e+2},"unknown":[null],"content":[{"type":"future"}],"_meta":{"k":"\u003c"}}`
	const failure = `{"message":"boom","code":-32000,"data":{"n":9007199254740993},"more":true}`
	got := make(chan string, 2)
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		got <- string(m.Params)
		if m.Method == "fail" {
			p.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":` + failure + `}`)
		} else {
			p.answer(m.ID, result)
		}
		return true
	}), ClientOptions{Protocol: Legacy})

	answer, err := c.Call(clientSoon(t), Call{Method: MethodToolsCall, Params: json.RawMessage(params)})
	if err != nil || string(answer) != result {
		t.Errorf("the result is %s, %v", answer, err)
	}
	if sent := testenv.Receive(t, got); sent != params {
		t.Errorf("the server got %s", sent)
	}
	_, err = c.Call(clientSoon(t), Call{Method: "fail"})
	var e *Error
	if !errors.As(err, &e) || string(e.Raw) != failure || e.Code != -32000 || string(e.Data()) != `{"n":9007199254740993}` {
		t.Errorf("the error is %v", err)
	}
}

func TestClientKeepsTheMetaOfOthersFromALegacyServer(t *testing.T) {
	got := make(chan string, 1)
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		got <- string(m.Params)
		p.answer(m.ID, `{}`)
		return true
	}), ClientOptions{Protocol: Legacy})
	params := `{"_meta":{"a":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"n":1.0}`
	if _, err := c.Call(clientSoon(t), Call{Method: "x", Params: json.RawMessage(params)}); err != nil {
		t.Fatal(err)
	}
	if sent := testenv.Receive(t, got); sent != `{"_meta":{"a":1},"n":1.0}` {
		t.Errorf("the server got %s", sent)
	}
}

func TestClientWritesAMessageOnOneLine(t *testing.T) {
	got := make(chan string, 1)
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		got <- string(m.Params)
		p.answer(m.ID, `{}`)
		return true
	}), ClientOptions{Protocol: Legacy})
	if _, err := c.Call(clientSoon(t), Call{Method: "x", Params: json.RawMessage("{\n\"a\": 1\r\n}")}); err != nil {
		t.Fatal(err)
	}
	if sent := testenv.Receive(t, got); sent != `{ "a": 1  }` {
		t.Errorf("the server got %s", sent)
	}
}

func TestClientIgnoresWhatIsNoAnswer(t *testing.T) {
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		id := string(m.ID)
		for _, noise := range []string{
			"Server started on port 1", "{", `{"jsonrpc":"2.0"}`, `[1,2]`, "\x00\xff", `{"a":1}`, "", "[]",
			`{"jsonrpc":"2.0","id":"` + id + `","result":{"wrong":1}}`, `{"jsonrpc":"2.0","id":99999,"result":{"wrong":2}}`,
			`{"jsonrpc":"2.0","id":` + id + `.5,"result":{"wrong":3}}`, `{"jsonrpc":"2.0","id":[` + id + `],"result":{}}`,
			`{"jsonrpc":"2.0","id":99999,"bogus":{}}`, `{"jsonrpc":"2.0","method":7}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":[]}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		} {
			p.say(noise)
		}
		p.answer(m.ID, `{"right":true}`)
		p.answer(m.ID, `{"twice":true}`)
		return true
	}), ClientOptions{Protocol: Legacy})
	for range 2 {
		result, err := c.Call(clientSoon(t), Call{Method: "x"})
		if err != nil || string(result) != `{"right":true}` {
			t.Errorf("the result is %s, %v", result, err)
		}
	}
	if c.Ignored() < 10 {
		t.Errorf("%d were ignored", c.Ignored())
	}
}

func TestClientFailsACallWhoseAnswerIsMalformed(t *testing.T) {
	for _, answer := range []string{
		`{"jsonrpc":"2.0","id":%s}`, `{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"x"}}`, `{"id":%s,"result":{}}`,
		`{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + `}`, // deeper than is read
		`{"jsonrpc":"2.0","id":%s,"result":{"a":}}`,
	} {
		c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
			p.say(fmt.Sprintf(answer, m.ID))
			return true
		}), ClientOptions{Protocol: Legacy})
		if _, err := c.Call(clientSoon(t), Call{Method: "x"}); !errors.Is(err, errClientMalformed) {
			t.Errorf("%.100s: the error is %v", answer, err)
		}
	}
}

func TestClientReadsBatches(t *testing.T) {
	notes := clientNotes{}
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		p.say(`[{"jsonrpc":"2.0","method":"notifications/a","params":{"n":9007199254740993}},{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{ "b":1}}]`)
		return true
	}), ClientOptions{Protocol: Legacy, Notified: notes.add})
	result, err := c.Call(clientSoon(t), Call{Method: "x"})
	if err != nil || string(result) != `{ "b":1}` {
		t.Errorf("the result is %s, %v", result, err)
	}
	if diff := cmp.Diff([]clientNote{{"notifications/a", `{"n":9007199254740993}`}}, notes.list(), cmp.AllowUnexported(clientNote{})); diff != "" {
		t.Error(diff)
	}
}

func TestClientTakesALargeResult(t *testing.T) {
	large := `{"text":"` + strings.Repeat("ö", 5<<20) + `"}`
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		p.answer(m.ID, large)
		return true
	}), ClientOptions{Protocol: Legacy})
	if result, err := c.Call(clientSoon(t), Call{Method: "x"}); err != nil || string(result) != large {
		t.Errorf("the result has %d bytes, %v", len(result), err)
	}
}

func TestClientEndsWithALineThatIsTooLong(t *testing.T) {
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		p.answer(m.ID, `"`+strings.Repeat("x", 2000)+`"`)
		return true
	}), ClientOptions{Protocol: Legacy, MaxMessage: 1000})
	_, err := c.Call(clientSoon(t), Call{Method: "x"})
	if !errors.Is(err, ErrClosed) || !errors.Is(err, errClientTooLong) {
		t.Errorf("the error is %v", err)
	}
	testenv.Receive(t, c.Done())
	if !errors.Is(c.Err(), ErrClosed) {
		t.Errorf("the connection has ended with %v", c.Err())
	}
}
