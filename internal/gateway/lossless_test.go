package gateway_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// randomJSON writes JSON in all its spellings.
type randomJSON struct{ *rand.Rand }

var (
	oddKeys = []string{
		`"a"`, `"_meta"`, `"progressToken"`, `"io.modelcontextprotocol/protocolVersion"`, `"io.modelcontextprotocol/serverInfo"`, `"io.modelcontextprotocol/subscriptionId"`,
		`"id"`, `"jsonrpc"`, `"method"`, `"result"`, `"error"`, `"\u0061"`, `"é"`, `"\ud83d\ude00"`, `"\ud800"`, `"a\/b"`, `""`, `"resultType"`, `"task"`, `"content"`, `"ID"`,
	}
	oddNumbers = []string{
		"0", "-0", "-0.0", "1.0", "1E+2", "9007199254740993", "-9007199254740993", "1e400", "1e-400", "0.1000", "123456789012345678901234567890", "18446744073709551616", "2.50e-07",
	}
	oddStrings = []string{
		`""`, `"plain"`, `"é"`, `"\u00e9"`, `"😀"`, `"\ud83d\ude00"`, `"\ud800"`, `"\u2028"`, "\"\u2028\u2029\"", `"a\/b"`, `"<&>"`, `"\u003c"`, `"\"\\\b\f\n\r\t"`, `"\u0000"`,
		"\"\x7f\"", `"{\"jsonrpc\":\"2.0\"}"`, `"data: x\n\nevent: y"`, `" "`, "\"\\u000a\"", `"\uFEFF"`, "\"\uFEFF\"",
	}
	odds = []string{"null", "true", "false", "{}", "[]", "{ }", "[\t]", "[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]"}
)

func pick(r randomJSON, from []string) string { return from[r.IntN(len(from))] }

// space is white space without line ends, which the framings by lines cannot carry.
func (r randomJSON) space() string { return pick(r, []string{"", "", "", " ", "\t", "  "}) }

func (r randomJSON) value(depth int) string {
	switch n := r.IntN(10); {
	case n < 2:
		return pick(r, oddNumbers)
	case n < 5:
		return pick(r, oddStrings)
	case n < 6 || depth == 0:
		return pick(r, odds)
	case n < 7:
		var items []string
		for range r.IntN(4) {
			items = append(items, r.space()+r.value(depth-1)+r.space())
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	return r.object(depth)
}

func (r randomJSON) object(depth int) string {
	var members []string
	for range r.IntN(5) {
		key := pick(r, oddKeys)
		if r.IntN(2) == 0 {
			key = strconv.Quote(fmt.Sprint("k", r.IntN(1000)))
		}
		members = append(members, r.space()+key+r.space()+":"+r.space()+r.value(depth-1)+r.space())
	}
	return "{" + strings.Join(members, ",") + "}"
}

// pair is one way through the gateway.
type pair struct {
	client, server       mcp.Era
	downstream, upstream string
}

func (p pair) String() string {
	return fmt.Sprintf("%s client over %s, %s server over %s", p.client, p.downstream, p.server, p.upstream)
}

// pairs are all ways: SSE has no modern protocol.
func pairs() (all []pair) {
	for _, client := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for _, server := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			for _, downstream := range []string{"http", "stdio", "bridge"} {
				for _, upstream := range []string{"http", "stdio", "sse"} {
					if server == mcp.Legacy || upstream != "sse" {
						all = append(all, pair{client: client, server: server, downstream: downstream, upstream: upstream})
					}
				}
			}
		}
	}
	return all
}

// lossless is a test of one way: each exchange is written, and both sides see what the other wrote.
type lossless struct {
	*testing.T
	pair
	r      randomJSON
	c      *rawClient
	server *rawServer

	mu     sync.Mutex
	seen   string                     // the params of the last request
	answer func(q *rawRequest) string // of the server
	other  []rawMessage               // what came to the client that was no answer
	reply  string                     // what the client answers when it is asked
}

// TestNothingIsLost sends random JSON through the gateway, over all transports and between all
// eras, with peers that are written by hand. What is not documented to change (docs/gateway.md)
// must arrive to the byte.
func TestNothingIsLost(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("EVALRUN_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	rounds := 5
	if os.Getenv(testenv.Long) != "" {
		rounds = 25
	}
	t.Logf("EVALRUN_SEED=%d", seed)
	for i, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			x := &lossless{T: t, pair: p, r: randomJSON{rand.New(rand.NewPCG(seed, uint64(i)))}}
			x.server = &rawServer{era: p.server, serve: x.serve, capabilities: `{"tools":{},"prompts":{},"resources":{},"logging":{}}`}
			a := open(t, gateway.Server{Name: "raw", Target: x.server.target(t, p.upstream)})
			x.c = newClient(t, a, p.downstream, &rawClient{era: p.client, capabilities: `{"elicitation":{},"sampling":{},"roots":{}}`, other: x.received})
			for range rounds {
				x.results()
				x.errors()
				x.lists()
				x.notifications()
				x.questions()
				if t.Failed() {
					return
				}
			}
		})
	}
}

func (x *lossless) serve(q *rawRequest) string {
	x.mu.Lock()
	x.seen = string(q.Params)
	answer := x.answer
	x.mu.Unlock()
	return answer(q)
}

func (x *lossless) received(text []byte) string {
	m := parseRaw(text)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.other = append(x.other, m)
	if m.ID == nil {
		return ""
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, x.reply)
}

// exchange makes a request that is answered so, and returns the answer that came.
func (x *lossless) exchange(method, params string, answer func(q *rawRequest) string) rawMessage {
	x.mu.Lock()
	x.answer, x.other = answer, nil
	x.mu.Unlock()
	return x.c.call(method, params)
}

// same checks that a text is there as it was sent, and begins so or is the whole.
func (x *lossless) same(what, got, want string, whole bool) {
	x.Helper()
	if got == want || !whole && strings.HasPrefix(got, want) {
		return
	}
	x.Errorf("%s was changed:\n got %s\nwant %s", what, got, want)
}

// sent checks the params that the server has got.
func (x *lossless) sent(members, meta string) {
	x.Helper()
	x.mu.Lock()
	seen := x.seen
	x.mu.Unlock()
	switch {
	case x.pair.server == mcp.Legacy && meta == "":
		x.same("params", seen, "{"+members+"}", true)
	case x.pair.server == mcp.Legacy:
		x.same("params", seen, "{"+members+`,"_meta":{`+meta+"}}", true)
	case meta == "":
		x.same("params", seen, "{"+members+`,"_meta":{"io.modelcontextprotocol/protocolVersion":`, false)
	default:
		x.same("params", seen, "{"+members+`,"_meta":{`+meta+`,"io.modelcontextprotocol/protocolVersion":`, false)
	}
}

// result writes a result of members as the server's era does.
func (x *lossless) result(members string) string {
	if x.pair.server == mcp.Modern {
		return `{"resultType":"complete",` + members + "}"
	}
	return "{" + members + "}"
}

// got checks the result that the client has got. One of the other era has members more.
func (x *lossless) got(m rawMessage, members string) {
	x.Helper()
	switch x.client {
	case x.pair.server:
		x.same("result", string(m.Result), x.result(members), true)
	case mcp.Legacy:
		x.same("result", string(m.Result), "{"+members+"}", true)
	default:
		x.same("result", string(m.Result), "{"+members+`,"resultType":"complete"`, false)
	}
}

// foreign is a member of _meta that is nobody's on the way.
func (x *lossless) foreign() string {
	return fmt.Sprintf(`"example.com/%d":%s`, x.r.IntN(100), x.r.value(3))
}

func (x *lossless) results() {
	for _, method := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete"} {
		members := fmt.Sprintf(`"name":"tool","uri":"tool","arguments":%s,"x%d":%s`, x.r.object(4), x.r.IntN(10), x.r.value(3))
		if method != "resources/read" {
			members = strings.Replace(members, `"uri":"tool",`, "", 1)
		} else {
			members = strings.Replace(members, `"name":"tool",`, "", 1)
		}
		meta := ""
		if x.r.IntN(2) == 0 {
			meta = x.foreign()
		}
		result := fmt.Sprintf(`"content":[{"type":"unheard-of","%d":%s}],"structuredContent":%s,"\u0079":%s,"_meta":{%s}`,
			x.r.IntN(100), x.r.value(4), x.r.value(4), x.r.value(3), x.foreign())
		m := x.exchange(method, x.c.params(members, meta), func(*rawRequest) string { return `"result":` + x.result(result) })
		x.sent(members, meta)
		x.got(m, result)
	}
}

func (x *lossless) errors() {
	code := pick(x.r, []string{"-32602", "-32603", "-32000", "1", "-32042", "9007199254740993", "-32002"})
	failure := fmt.Sprintf(`{"code":%s,"message":%s,"data":%s,"z":%s}`, code, pick(x.r, oddStrings), x.r.value(4), x.r.value(3))
	m := x.exchange("tools/call", x.c.params(`"name":"tool","arguments":{}`, ""), func(*rawRequest) string { return `"error":` + failure })
	x.same("error", string(m.Error), failure, true)
}

func (x *lossless) lists() {
	for method, key := range map[string]string{"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"} {
		members := fmt.Sprintf(`"cursor":%s`, pick(x.r, []string{`"page 2"`, `"\u00e9"`, `""`}))
		result := fmt.Sprintf(`"%s":[{"name":"tool","uri":"tool","inputSchema":%s,"annotations":%s,"_meta":%s, "z":%s} , {"name":"other","inputSchema":{"$ref":%s}}],"nextCursor":%s,"z":%s`,
			key, x.r.object(4), x.r.value(2), x.r.object(2), x.r.value(2), x.r.value(1), pick(x.r, oddStrings), x.r.value(2))
		m := x.exchange(method, x.c.params(members, ""), func(*rawRequest) string { return `"result":` + x.result(result) })
		x.sent(members, "")
		x.got(m, result)
	}
}

// notifications are those that belong to a call, in their order and before its answer. The progress
// token is that of each hop.
func (x *lossless) notifications() {
	token := pick(x.r, []string{`"token"`, `7`, `"\u00e9"`, `9007199254740993`})
	meta := `"progressToken":` + token
	if x.client == mcp.Modern {
		meta += `,"io.modelcontextprotocol/logLevel":"debug"`
	}
	var params []string
	for range 5 {
		params = append(params, fmt.Sprintf(`"progress":%s,"total":%s,"message":%s,"z":%s`, pick(x.r, oddNumbers), pick(x.r, oddNumbers), pick(x.r, oddStrings), x.r.value(3)))
	}
	message := fmt.Sprintf(`{"level":"info","data":%s,"z":%s}`, x.r.value(3), x.r.value(2))
	x.exchange("tools/call", x.c.params(`"name":"tool","arguments":{}`, meta), func(q *rawRequest) string {
		var p struct {
			Meta struct {
				ProgressToken any `json:"progressToken"`
			} `json:"_meta"`
		}
		if err := unmarshal(q.Params, &p); err != nil {
			x.Errorf("params: %v", err)
		}
		for _, progress := range params {
			q.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%v,%s}}`, p.Meta.ProgressToken, progress))
		}
		q.say(`{"jsonrpc":"2.0","method":"notifications/message","params":` + message + `}`)
		return `"result":` + x.result(`"content":[]`)
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	var progress []string
	logged := ""
	for _, m := range x.other {
		switch m.Method {
		case "notifications/progress":
			progress = append(progress, string(m.Params))
		case "notifications/message":
			logged = string(m.Params)
		}
	}
	for i, want := range params {
		if i >= len(progress) {
			x.Errorf("%d of %d notifications of progress came", len(progress), len(params))
			return
		}
		x.same("progress", progress[i], `{"progressToken":`+token+","+want+"}", true)
	}
	x.same("log message", logged, message, true)
}

// questions are what the server wants to know in the middle of a call.
func (x *lossless) questions() {
	method := pick(x.r, []string{"elicitation/create", "sampling/createMessage"})
	ask := fmt.Sprintf(`{"message":%s,"requestedSchema":%s,"z":%s}`, pick(x.r, oddStrings), x.r.object(3), x.r.value(2))
	x.mu.Lock()
	x.reply = fmt.Sprintf(`{"action":"accept","content":%s,"z":%s}`, x.r.object(3), x.r.value(2))
	x.mu.Unlock()
	state := pick(x.r, oddStrings)
	var answered string
	members := fmt.Sprintf(`"name":"tool","arguments":%s`, x.r.object(3))
	m := x.exchange("tools/call", x.c.params(members, ""), func(q *rawRequest) string {
		if x.pair.server == mcp.Legacy {
			answered = string(q.ask(method, ask).Result)
			return `"result":` + x.result(`"content":[]`)
		}
		var again struct {
			InputResponses map[string]jsonRaw `json:"inputResponses"`
			RequestState   jsonRaw            `json:"requestState"`
		}
		if err := unmarshal(q.Params, &again); err != nil {
			x.Errorf("params: %v", err)
		}
		if again.InputResponses == nil {
			return fmt.Sprintf(`"result":{"resultType":"input_required","inputRequests":{"a key":{"method":%q,"params":%s}},"requestState":%s}`, method, ask, state)
		}
		x.same("requestState", string(again.RequestState), state, true)
		answered = string(again.InputResponses["a key"])
		return `"result":` + x.result(`"content":[]`)
	})
	if x.client == mcp.Modern {
		var required struct {
			InputRequests map[string]struct {
				Method string  `json:"method"`
				Params jsonRaw `json:"params"`
			} `json:"inputRequests"`
			RequestState jsonRaw `json:"requestState"`
		}
		if err := unmarshal(m.Result, &required); err != nil || len(required.InputRequests) != 1 {
			x.Errorf("%v: expected a question, not %s", err, m.Result)
			return
		}
		for key, request := range required.InputRequests {
			x.same("question", request.Method+string(request.Params), method+ask, true)
			again := fmt.Sprintf(`%s,"inputResponses":{%q:%s},"requestState":%s`, members, key, x.reply, required.RequestState)
			m = x.c.call("tools/call", x.c.params(again, ""))
		}
	} else {
		x.mu.Lock()
		if len(x.other) != 1 {
			x.Errorf("%d questions came, want 1", len(x.other))
		} else {
			x.same("question", x.other[0].Method+string(x.other[0].Params), method+ask, true)
		}
		x.mu.Unlock()
	}
	x.same("answer to a question", answered, x.reply, true)
	x.got(m, `"content":[]`)
}
