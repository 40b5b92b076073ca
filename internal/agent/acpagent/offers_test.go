package acpagent

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
)

// offering is a rollout with two servers, of which the agent lists the tools whatever it offers.
func offering(t *testing.T) *rollout {
	r := newRollout(t)
	proxy, _ := model(t, http.StatusOK, nil)
	r.useModel(proxy)
	r.behindGateway(recordServer(t, "records", "read_record", "write_record"), recordServer(t, "mail", "send"))
	return r
}

// offer is a directive by which the agent asks its model, and offers it tools.
func offer(t *testing.T, body string) string { return "[[RUN " + askFixture(t) + " '" + body + "']] " }

// chat is the body of a chat completion that offers tools.
func chat(tools ...string) string {
	return `{"model":"m","messages":[{"role":"system","content":"I am an agent"},{"role":"user","content":"use read_record, write_record and mail__send"}],"tools":[{"type":"function","function":{"name":"bash"}}` +
		strings.Join(append([]string{""}, tools...), `,`) + `]}`
}

func function(name string) string { return `{"type":"function","function":{"name":"` + name + `"}}` }

// A21: what an agent keeps from its model is told, and what it offers in a way of its own is not
// taken for hidden.
func TestToolsThatAreNotOffered(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	type verdicts []string // of records and mail, with what is not offered
	for name, c := range map[string]struct {
		asks  []string
		form  string
		more  string // further directives
		want  verdicts
		fault string
	}{
		"nothing is offered": {asks: []string{chat()}, want: verdicts{"hidden", "hidden"},
			fault: `MCP server "records": the agent has its tools (read_record, write_record), and none of the 1 requests to its model offered one`},
		"of one server nothing": {asks: []string{chat(function("records__read_record"), function("records__write_record"))}, want: verdicts{"sent", "hidden"}},
		"not all of a server":   {asks: []string{chat(function("records__read_record"), function("send"))}, want: verdicts{"sent write_record", "sent"}},
		"in the end all": {asks: []string{chat(), chat(function("records_read_record"), function("send")), chat(function("x_write_record"))},
			want: verdicts{"sent", "sent"}},
		"an agent's own tool of that name": {form: "mcp__{server}__{tool}", asks: []string{chat(function("send"), function("mcp__records__read_record"), function("mcp__records__write_record"))},
			want: verdicts{"sent", "hidden"}},
		"behind a search": {asks: []string{chat(function("ToolSearch"))}, want: verdicts{"deferred", "deferred"}},
		"found by a search": {asks: []string{chat(function("ToolSearch")), chat(function("ToolSearch"), function("records__read_record"), function("mail__send"))},
			want: verdicts{"sent", "sent"}},
		"in words": {form: "mcp__{server}__{tool}", asks: []string{`{"model":"m","messages":[{"role":"system","content":"<tools>\nread_record: reads\nwrite_record\nMCP.mail/send</tools>"}]}`},
			want: verdicts{"sent", "sent"}},
		"called all the same":                 {asks: []string{chat()}, more: `[[CALL records.read_record {}]] [[CALL mail.send {}]]`, want: verdicts{"sent", "sent"}},
		"the model is not asked":              {want: verdicts{"sent", "sent"}},
		"a request of which nothing is known": {asks: []string{`{"model":"m","tools":[`}, want: verdicts{"sent", "sent"}},
		"responses": {asks: []string{`{"model":"m","input":[],"tools":[{"type":"namespace","name":"mcp__records","tools":[{"name":"read_record"},{"name":"write_record"}]},{"type":"function","name":"mail__send"}]}`},
			form: "mcp__{server}__{tool}", want: verdicts{"sent", "sent"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := offering(t)
			SettingsOf(r.entry).ToolName = c.form
			prompt := ""
			for _, body := range c.asks {
				prompt += offer(t, body)
			}
			out := r.prompt(prompt + c.more + "[[SAY done]]")
			if c.fault != "" {
				mustFault(t, out, fault.MCP, c.fault)
			} else if out.Fault != nil {
				t.Error(out.Fault)
			}
			var got verdicts
			for _, v := range out.Info.MCPServers {
				got = append(got, strings.TrimSpace(string(v.Verdict)+" "+strings.Join(v.NotOffered, " ")))
				if (v.Verdict == record.VerdictSent) != (v.Reason == "") {
					t.Errorf("got %+v", v)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Some agents begin a resumed session before they have their tools again.
func TestToolsThatWereOfferedBefore(t *testing.T) {
	t.Parallel()
	r := offering(t)
	SettingsOf(r.entry).Permissions = PolicySuspend
	waits := ids(t, r.prompt(offer(t, chat(function("read_record"), function("write_record"), function("send")))+`[[ASK edit Write {"path":"a"}]]`))
	out := r.run(r.directed(waits[0], offer(t, chat())))
	if out.Fault != nil || out.Info.MCPServers[0].Verdict != record.VerdictSent || out.Info.MCPServers[1].Verdict != record.VerdictSent {
		t.Errorf("%v, %+v", out.Fault, out.Info.MCPServers)
	}
}

// Names as agents make them.
func TestNamesOfOfferedTools(t *testing.T) {
	long := strings.Repeat("a_long_name_", 8)
	for _, c := range []struct {
		form, offered, server, tool string
		want                        bool
	}{
		{"mcp__{server}__{tool}", "mcp__my_server__do_it", "my server", "do.it", true},
		{"{server}_{tool}", "My-Server_do-it", "my-server", "do-it", true},
		{"mcp_{server}_{tool}", "mcp_s_" + long[:24] + "..." + long[len(long)-20:], "s", long, true},
		{"mcp__{server}__{tool}", "read", "files", "read", false},
		{"mcp__{server}__{tool}", "files.read", "files", "read", true},
		{"", "read", "files", "read", true},
		{"", "files_read_all", "files", "read", false},
	} {
		full := ""
		if c.form != "" {
			full = plain(strings.NewReplacer("{server}", c.server, "{tool}", c.tool).Replace(c.form))
		}
		if got := new(offers).names(plain(c.offered), full, plain(c.server), plain(c.tool)); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}
