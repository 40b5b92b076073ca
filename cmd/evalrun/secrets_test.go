package main

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// leakVar names the variables that the program of [TestSecretsAreInNoFile] leaks, and makes the
// test binary that program.
const leakVar = "LEAK_VARIABLES"

// spellings are the ways in which secrets are leaked and looked for: raw, and encoded by one, two
// and three writers.
func spellings(v string) map[string]string {
	quote := func(s string, html bool) string {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(html)
		_ = enc.Encode(s) // a string always encodes
		return strings.TrimSuffix(b.String(), "\n")[1 : b.Len()-2]
	}
	upper := func(s string) string { // as .NET and Gson do
		var b strings.Builder
		for _, r := range quote(s, false) {
			if r < 0x80 && !strings.ContainsRune("<>&'+=", r) {
				b.WriteRune(r)
			} else if r <= 0xffff {
				fmt.Fprintf(&b, `\u%04X`, r)
			}
		}
		return strings.ReplaceAll(b.String(), "/", `\/`)
	}
	in64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	plain, html := quote(v, false), quote(v, true)
	return map[string]string{
		"raw": v, "JSON": plain, "JSON for HTML": html, "JSON in JSON": quote(plain, false), "JSON in JSON in JSON": quote(quote(html, false), true),
		"upper": upper(v), "upper in JSON": quote(upper(v), false), "URL": url.QueryEscape(v), "URL path": url.PathEscape(v), "URL in JSON": quote(url.QueryEscape(plain), true),
		"URL of URL": url.QueryEscape(url.PathEscape(v)), "base64": in64(v), "base64 of JSON": in64(plain), "base64 in JSON in JSON": quote(quote(in64("x"+v), true), true),
		"base64 of base64": in64(in64(v)), "base64url": base64.RawURLEncoding.EncodeToString([]byte("xy" + v)),
	}
}

// leak prints the secrets in all spellings, and one of them byte by byte.
func leak(w io.Writer) (all []string) {
	for _, name := range strings.Fields(os.Getenv(leakVar)) {
		for _, text := range spellings(os.Getenv(name)) {
			all = append(all, text)
			_, _ = fmt.Fprintln(w, text)
		}
		text := spellings(os.Getenv(name))["JSON in JSON"]
		for i := range len(text) {
			_, _ = w.Write([]byte{text[i]})
		}
	}
	return all
}

// leaky is the program: a function agent, or with the argument print a job, an evaluator or a
// server.
func leaky() {
	all := leak(os.Stderr)
	key := os.Getenv("AGENT_KEY")
	var in struct {
		Input  struct{ Case string }
		Resume any
	}
	if len(os.Args) > 1 || json.NewDecoder(os.Stdin).Decode(&in) != nil {
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"score": 1, "details": strings.Join(all, " ")})
		return
	}
	if trace := os.Getenv("EVALRUN_TRACE_FILE"); trace != "" {
		inner, _ := json.Marshal(map[string]any{"k": all})
		span, _ := json.Marshal(map[string]any{"name": "t", "context": map[string]string{"trace_id": "1", "span_id": "2"},
			"attributes": map[string]any{"tool.name": "t", "input.value": string(inner), "output.value": key}})
		_ = os.WriteFile(trace, append(span, '\n'), 0o600) // a test that misses it has less to find
	}
	out := map[string]any{"out": all, "resume": in.Resume, key: "as a key"}
	waits := map[string]any{
		"http": map[string]any{"name": "H", "input_arguments": map[string]any{"k": all}}, "failing": map[string]any{"name": "H", "input_arguments": map[string]any{"FAIL": key}},
		"exec": map[string]any{"name": "X", "input_arguments": map[string]any{"k": key}}, "person": map[string]any{"title": "approve " + key, "data": all}, "api": map[string]any{"anything": all},
	}
	switch wait, ok := waits[in.Input.Case]; {
	case in.Input.Case == "crash":
		fmt.Fprintln(os.Stderr, "crash with", strings.Join(all, " "))
		os.Exit(1)
	case ok && in.Resume == nil:
		out = map[string]any{"__interrupt__": []any{map[string]any{"id": "i-" + key, "value": wait}}}
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}

// leakyService is a job service that echoes what it gets in results, errors and headers.
func leakyService(w http.ResponseWriter, r *http.Request) {
	token, path := r.Header.Get("Authorization"), r.URL.Path
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Echo", token)
	answer := map[string]any{"id": "job", "echo": token, "path": r.URL.String(), "state": "done", "output": map[string]any{"token": token, "url": r.URL.String()}}
	switch {
	case strings.HasPrefix(path, "/start") && bytes.Contains(body, []byte("FAIL")):
		answer["id"] = "bad"
	case path == "/jobs/bad":
		answer["state"], answer["message"] = "failed", "it failed with "+token
	case !strings.HasPrefix(path, "/start") && !strings.HasPrefix(path, "/jobs/"):
		http.Error(w, "no such thing for "+token+" at "+r.URL.String(), http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// Random secrets in all the places where evalrun meets some are in no file that it leaves, nor
// in anything that it prints, however they are encoded; only the payload columns of the store have
// them.
func TestSecretsAreInNoFile(t *testing.T) {
	testenv.NeedSlow(t)
	if testenv.Short() {
		t.Skip("takes seconds")
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	random := func(alphabet string, n int) string {
		runes, out := []rune(alphabet), make([]rune, n)
		for i := range out {
			out[i] = runes[rnd.IntN(len(runes))]
		}
		return string(out)
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	token := func() string { return "tk-" + random(letters+"+/", 24) + "=" }
	anything := func() string { return "p" + random(`"\/<>&' +=%{}:;`+letters+"äßé日", 30) + "w" }
	pem := func() string {
		return "-----BEGIN PRIVATE KEY-----\n" + random(letters+"+/", 64) + "\n" + random(letters, 20) + "==\n-----END PRIVATE KEY-----"
	}
	secrets := map[string]string{
		"HTTP_TOKEN": anything(), "AGENT_KEY": `ak-"` + anything(), "EXEC_KEY": anything(), "ENV_SECRET": pem(), "FILE_SECRET": token(), "MCP_HEADER": token(), "MCP_ENV": anything(),
		"MODEL_KEY": token(), "URL_SECRET": token(), "MY_API_TOKEN": anything(), "DB_PASSWORD": anything(), "EVAL_KEY": anything(),
		"MULTI_SECRET": `{"type": "service_account", "private_key": "` + strings.ReplaceAll(pem(), "\n", `\n`) + `"}`, "FILE_KEY": pem(),
		"HOOK_SECRET": "whsec_" + base64.StdEncoding.EncodeToString([]byte(random(letters, 32))),
	}
	programs := t.TempDir()
	acpAgent := filepath.Join(programs, "acp-agent")
	if err := testenv.Build(programs, testenv.ACPAgent); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	t.Setenv("EVALRUN_STORE", "")
	for name, value := range secrets {
		if name != "FILE_SECRET" {
			t.Setenv(name, value)
		}
	}
	service := httptest.NewServer(http.HandlerFunc(leakyService))
	defer service.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	evalrun := filepath.Join(t.TempDir(), "evalrun")
	if program, err := os.ReadFile(self); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(evalrun, program, 0o755); err != nil { // no link: the supervisors of jobs are evalrun too
		t.Fatal(err)
	}
	document := func(name string, v any) {
		data, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(name, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type object = map[string]any
	bearer := object{"Authorization": "Bearer ${HTTP_TOKEN}"}
	leaks := "AGENT_KEY FILE_SECRET ENV_SECRET MULTI_SECRET MY_API_TOKEN DB_PASSWORD"
	var evaluations []object
	for _, c := range []string{"http", "failing", "exec", "person", "api", "crash", "plain"} {
		evaluations = append(evaluations, object{"id": c, "name": c, "inputs": object{"case": c}, "evaluationCriterias": object{"c": object{}}})
	}
	document("set.json", object{"version": "1.0", "id": "s", "name": "S", "evaluations": evaluations,
		"agent": object{"type": "function", "name": "leaky", "command": []string{self}, "env": object{"AGENT_KEY": "${AGENT_KEY}", "MULTI_SECRET": "${MULTI_SECRET}", "FILE_SECRET": "${FILE_SECRET}", leakVar: leaks}},
		"retry": object{"max": 1, "on": []string{"exit"}, "backoff": "10ms"},
		"jobs": object{
			"H": object{"source": "http", "interval": "10ms", "start": object{"url": service.URL + "/start?u=${URL_SECRET}", "headers": bearer, "body": object{"args": "{inputArguments}"}},
				"itemKey": ".id", "idempotencyHeader": "Idempotency-Key",
				"status": object{"url": service.URL + "/jobs/{itemKey}?u=${URL_SECRET}", "headers": bearer, "done": `.state == "done"`, "failed": `.state == "failed"`, "error": ".message"},
				"result": object{"url": service.URL + "/jobs/{itemKey}?u=${URL_SECRET}", "headers": bearer, "value": ".output"}},
			"X": object{"source": "exec", "command": []string{self, "print"}, "env": object{"EXEC_KEY": "${EXEC_KEY}", leakVar: "EXEC_KEY"}},
		},
		"notify":     []object{{"command": []string{"sh", "-c", `cat >>told; echo "$MY_API_TOKEN $AGENT_KEY" >&2; exit 1`}}, {"url": service.URL + "/notify?u=${URL_SECRET}", "secret": "${HOOK_SECRET}"}},
		"evaluators": []object{{"id": "c", "type": "command", "command": []string{"env", leakVar + "=EVAL_KEY MY_API_TOKEN", self, "print"}}},
	})
	if err := os.WriteFile("file.env", []byte("FILE_SECRET="+secrets["FILE_SECRET"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	do := func(stdin string, args ...string) string {
		var out, log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, evalrun, append(args, "--log-level", "debug")...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &log
		err := cmd.Run()
		code := cmd.ProcessState.ExitCode()
		if code < 0 {
			t.Fatal(err)
		}
		fmt.Fprintf(&printed, "%s\n%s\n", &out, &log)
		if code == exitUsage || code == exitInternal {
			t.Errorf("evalrun %v: exit %d\n%.2000s", args, code, &log)
		}
		return out.String()
	}
	do("", "run", "--env", "ENV_SECRET", "--env", "EVAL_KEY", "--env-file", "file.env", "--run-id", "r", "--events", "events.jsonl", "--junit", "junit.xml", "--summary", "summary.md", "-o", "results.json", "set.json")
	do("", "triggers")
	var waiting []struct{ TriggerID, Type string }
	if err := json.Unmarshal([]byte(do("", "triggers", "--json")), &waiting); err != nil {
		t.Fatal(err)
	}
	for _, trigger := range waiting {
		switch trigger.Type {
		case "TASK":
			do("", "approve", trigger.TriggerID, "--reason", "because "+secrets["AGENT_KEY"])
		case "API":
			payload, _ := json.Marshal(object{"x": secrets["AGENT_KEY"], "y": secrets["ENV_SECRET"]})
			do(string(payload), "deliver", trigger.TriggerID, "--payload", "-")
		}
	}
	do("", "resume", "--env", "ENV_SECRET", "--env", "EVAL_KEY", "--env-file", "file.env", "--wait", "--wait-timeout", "30s", "r", "--junit", "junit.xml", "-o", "results.json")

	// An ACP agent with a model, a file, and MCP servers that fail.
	document("acp.json", object{"type": "acp", "name": "acp", "command": []string{acpAgent}, "env": object{"AGENT_KEY": "${AGENT_KEY}", leakVar: leaks + " MODEL_KEY"},
		"files": object{"key.json": "${FILE_KEY}"}, "model": object{"api": "openai", "url": service.URL + "/v1", "key": "${MODEL_KEY}", "name": "small"}})
	prompt := "[[RUN " + self + " print]][[RUN env; cat $HOME/key.json; cat key.json]]"
	document("acpset.json", object{"version": "1.0", "id": "a", "name": "A", "evaluations": []object{{"id": "a", "name": "A", "inputs": object{"prompt": prompt}, "evaluationCriterias": object{}}}})
	document("mcp.json", object{"mcpServers": object{
		"h": object{"type": "http", "url": service.URL + "/mcp?u=${URL_SECRET}", "headers": object{"Authorization": "Bearer ${MCP_HEADER}"}},
		"s": object{"command": self, "args": []string{"print"}, "env": object{"MCP_ENV": "${MCP_ENV}", leakVar: "MCP_ENV"}}}})
	passed := []string{"--isolation", "process", "--agent", "acp.json", "acpset.json"}
	for _, name := range []string{"ENV_SECRET", "URL_SECRET", "MCP_HEADER", "MCP_ENV", "FILE_KEY"} {
		passed = append(passed, "--env", name)
	}
	do("", append([]string{"run", "--run-id", "acp"}, passed...)...)
	do("", append([]string{"run", "--run-id", "mcp", "--mcp-config", "mcp.json"}, passed...)...)
	for _, run := range []string{"r", "acp", "mcp"} {
		for _, format := range reportFormats {
			file := "report." + run + "." + format
			do("", "report", run, "--format", format, "-o", file)
			unpack(t, format, file)
		}
		do("", "show", run)
		do("", "show", run, "--json")
		do("", "triggers", "--all", run)
	}

	// Then the secrets got everywhere (but for EVAL_KEY, since evaluators get no secrets), and are
	// nowhere.
	var seen strings.Builder
	look := func(where, text string) {
		seen.WriteString(text)
		for name, value := range secrets {
			for kind, spelling := range spellings(value) {
				if strings.Contains(kind, "base64") { // what its ends share with their neighbours can stay
					spelling = spelling[8 : len(spelling)-8]
				}
				if i := strings.Index(text, spelling); i >= 0 {
					t.Errorf("%s: %s as %s: %.200q", where, name, kind, text[max(0, i-60):])
				}
			}
		}
	}
	look("printed", printed.String())
	written := []string{"set.json", "acp.json", "acpset.json", "mcp.json", "file.env"}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		raw := strings.HasPrefix(path, ".evalrun/store.db") || strings.HasPrefix(path, ".evalrun/work/") || strings.HasPrefix(path, ".evalrun/jobs/") && slices.Contains(payloadFiles, filepath.Base(path)) || slices.Contains(written, path)
		if err != nil || !d.Type().IsRegular() || raw {
			return err
		}
		data, err := os.ReadFile(path)
		look(path, string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"AGENT_KEY", "HTTP_TOKEN", "ENV_SECRET", "FILE_SECRET", "FILE_KEY", "MULTI_SECRET", "MY_API_TOKEN", "DB_PASSWORD", "EXEC_KEY", "URL_SECRET", "MCP_ENV"} {
		if !strings.Contains(seen.String(), "[redacted:"+name+"]") {
			t.Errorf("%s was written nowhere, and so this shows nothing of it", name)
		}
	}
	for column, text := range storeColumns(t, ".evalrun/store.db") {
		if !slices.Contains(payloadColumns, column) {
			look(column, text)
		}
	}
}

// unpack makes files of what a report has compressed.
func unpack(t *testing.T, format, file string) {
	t.Helper()
	switch format {
	case "inspect":
		unzip(t, file, file+".unpacked")
	case formatHTML:
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parts := regexp.MustCompile(`>([A-Za-z0-9+/=]{40,})<`).FindAllSubmatch(page, -1)
		for i, part := range parts {
			packed, err := base64.StdEncoding.DecodeString(string(part[1]))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
			if err == nil {
				err = os.WriteFile(fmt.Sprintf("%s.part%d", file, i), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(parts) < 2 {
			t.Errorf("%s has %d compressed parts", file, len(parts))
		}
	}
}

// payloadColumns are those that hold what agents and sources have handed in, as it is. An agent
// gets its interrupts' ids back.
var payloadColumns = []string{"triggers.spec", "triggers.interrupt_id", "triggers.payload", "deliveries.payload", "events.data"}

// payloadFiles are what local jobs are given and give back.
var payloadFiles = []string{"spec.json", "result.json"}

// storeColumns are the contents of the columns of a store, by table and name.
func storeColumns(t *testing.T, file string) map[string]string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	out := map[string]string{}
	rows, err := db.Query(`SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'`)
	if err != nil {
		t.Fatal(err)
	}
	var names [][2]string
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			t.Fatal(err)
		}
		names = append(names, [2]string{table, column})
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		var all sql.NullString
		if err := db.QueryRow(fmt.Sprintf(`SELECT group_concat(CAST(%q AS TEXT), char(10)) FROM %q`, n[1], n[0])).Scan(&all); err != nil {
			t.Fatal(err)
		}
		out[n[0]+"."+n[1]] = all.String
	}
	return out
}
