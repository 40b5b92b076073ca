package tasks

import (
	"errors"
	"testing"
)

func lookup(name string) (string, bool) {
	v, ok := map[string]string{"VV": "v", "EMPTY": "", "REF": "${VV}"}[name]
	return v, ok
}

// A ${VAR} is resolved where it is the whole value, with a default after ":-"; all else stays as it
// is written.
func TestInterpolation(t *testing.T) {
	for value, want := range map[string]string{
		"${VV}": "v", "x${VV}": "x${VV}", "${VV}y": "${VV}y", "${NOPE:-d}": "d", "${NOPE:-}": "",
		"${EMPTY:-d}": "", "${VV:-d}": "v", "${NOPE:-${VV}}": "${VV}", "${VV:+x}": "${VV:+x}", "${VV}${VV}": "${VV}${VV}", "$VV": "$VV",
		"": "", "${}": "${}", "${EMPTY}": "", "${REF}": "${VV}", "${NOPE:-a}b}": "a}b", "${VV}\n": "${VV}\n", "${NOPE:-a\nb}": "${NOPE:-a\nb}",
	} {
		got, err := ExpandEnv("environment.env", []KeyValue{{"A", value}}, lookup)
		if err != nil || got[0].Value != want {
			t.Errorf("%q: got %q, %v, want %q", value, got, err, want)
		}
	}
	_, err := ExpandEnv("verifier.env", []KeyValue{{"A", "${NOPE}"}, {"B", "${VV}"}, {"C", "${NOT}"}}, lookup)
	var missing *MissingVariableError
	if !errors.As(err, &missing) || *missing != (MissingVariableError{Key: "verifier.env.A", Name: "NOPE"}) {
		t.Errorf("got %v", err)
	}
	if err == nil || err.Error() != "verifier.env.A: the variable ${NOPE} is not passed to tasks; pass it with --env NOPE\n"+
		"verifier.env.C: the variable ${NOT} is not passed to tasks; pass it with --env NOT" {
		t.Errorf("got %v", err)
	}
}

// Given a reference inside of a value, when it belongs to an MCP server, then it is resolved.
func TestInterpolationOfServers(t *testing.T) {
	for value, want := range map[string]string{
		"Bearer ${VV}": "Bearer v", "${VV}": "v", "${VV}-${VV}": "v-v", "a${NOPE:-d}b": "adb", "${NOPE:-}": "", "x${EMPTY:-d}": "x", "$VV": "$VV",
		"${VV:+x}": "${VV:+x}", "${input:token}": "${input:token}", "${REF}": "${VV}", "": "", "${": "${", "é${VV}é": "évé",
	} {
		s := MCPServer{Name: "a", URL: value, Command: value, Args: []string{value}, Cwd: value, Env: []KeyValue{{"A", value}}, Headers: []KeyValue{{"Authorization", value}}}
		got, err := ExpandServer(s, lookup)
		if err != nil {
			t.Errorf("%q: %v", value, err)
		}
		equal(t, value, got, MCPServer{Name: "a", URL: want, Command: value, Args: []string{value}, Cwd: value, Env: []KeyValue{{"A", want}}, Headers: []KeyValue{{"Authorization", want}}})
		if s.Env[0].Value != value {
			t.Error("the server that was given has changed")
		}
	}
	_, err := ExpandServer(MCPServer{Name: "a", URL: "http://${HOST}/mcp", Headers: []KeyValue{{"X", "Bearer ${TOKEN}"}}}, lookup)
	if err == nil || err.Error() != "mcp_servers.a.url: the variable ${HOST} is not passed to tasks; pass it with --env HOST\n"+
		"mcp_servers.a.headers.X: the variable ${TOKEN} is not passed to tasks; pass it with --env TOKEN" {
		t.Errorf("got %v", err)
	}
}

func TestVariables(t *testing.T) {
	c := accepted(t, `
[environment]
env = { A = "${E1}", B = "x${NOT_WHOLE}" }
[[environment.setup_commands]]
command = "true"
env = { A = "${C1:-d}" }
[[environment.mcp_servers]]
name = "a"
url = "http://${M1}/${M2}"
command = "x"
env = { A = "${M3}", B = "${E1}" }
headers = { A = "Bearer ${M4}" }
[verifier.env]
A = "${V1}"
[verifier.environment.env]
A = "${V2}"
[solution.env]
A = "${S1}"
[[steps]]
name = "s"
verifier.env = { A = "${V3}" }
`)
	equal(t, "variables", c.Variables(), []string{"C1", "E1", "M1", "M2", "M3", "M4", "S1", "V1", "V2", "V3"})
}
