package lab

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/probe"
	"github.com/evalrun/evalrun/internal/testenv"
)

var update = flag.Bool("update", false, "write the table of docs/conformance/agents.md")

// conformanceRows are the rows of the page: what they say, and the check and fact that say it.
var conformanceRows = []struct{ says, check, fact string }{
	{"`session/load` is offered", "load", probe.FactAdvertised},
	{"… the model is shown the whole history, with calls and their results", "load", probe.FactHistory},
	{"… the new server is called, with its new token", "load", probe.FactNewServer},
	{"… the old server is left alone", "load", probe.FactOldServer},
	{"… a call is repeated", "load", probe.FactRepeated},
	{"… permission is asked again", "load", probe.FactPermission},
	{"`session/resume` is offered", "resume", probe.FactAdvertised},
	{"… the model is shown the whole history, with calls and their results", "resume", probe.FactHistory},
	{"… the new server is called, with its new token", "resume", probe.FactNewServer},
	{"… the old server is left alone", "resume", probe.FactOldServer},
	{"… a call is repeated", "resume", probe.FactRepeated},
	{"… permission is asked again", "resume", probe.FactPermission},
	{"MCP over stdio", "stdio", ""},
	{"MCP over HTTP", "http", ""},
	{"MCP over HTTP+SSE", "sse", ""},
	{"permission is asked for a tool", "http", probe.FactPermission},
	{"usage is told", "http", probe.FactUsage},
	{"a server that is not there", "dead-server", ""},
	{"`session/cancel` in a call: the server is told", "cancel-tool", probe.FactServerTold},
	{"ends when its stdin does", "exit", ""},
}

// TestConformanceOfAgents compares the page about what agents keep over a suspension with what they
// keep now.
func TestConformanceOfAgents(t *testing.T) {
	testenv.NeedLong(t)
	names := []string{"claude", "codex", "copilot", "gemini", "kimi", "opencode", "qwen"}
	table := []string{"| |", "|---|"}
	for _, row := range conformanceRows {
		table = append(table, "| "+row.says+" |")
	}
	for _, name := range names {
		report := probeReport(t, name, "bwrap")
		table[0] += fmt.Sprintf(" %s %s |", name, report.Agent.Version)
		table[1] += "---|"
		for i, row := range conformanceRows {
			table[i+2] += " " + said(report, row.check, row.fact) + " |"
		}
	}

	file := filepath.Join("..", "..", "..", "docs", "conformance", "agents.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	made := regexp.MustCompile(`(?ms)^\| \|.*?\n\n`)
	want := []byte(strings.Join(table, "\n") + "\n\n")
	if bytes.Equal(made.Find(page), want) {
		return
	}
	if !*update {
		t.Fatalf("%s says something else (-update writes it):\n%s", file, want)
	}
	if err := os.WriteFile(file, made.ReplaceAll(page, want), 0o600); err != nil {
		t.Fatal(err)
	}
}

// said is the verdict about a fact, or about the whole check if it names none; "–" if it was not
// found out, and why if the check failed.
func said(report probe.Report, check, fact string) string {
	for _, c := range report.Checks {
		switch {
		case c.Name != check:
		case fact == "" || c.Verdict == probe.Failed:
			return c.Verdict
		default:
			return cmp.Or(c.Fact(fact), "–")
		}
	}
	return "–"
}

// probeReport probes an agent of the lab.
func probeReport(t *testing.T, name, isolation string, args ...string) (report probe.Report) {
	t.Helper()
	dir := t.TempDir()
	entry := startModel(t).agentEntry(dir, name, nil)
	out := evalrun(t, dir, 0, append([]string{"probe", "--quiet", "--json", "--isolation", isolation, "--timeout", "3m", entry}, args...)...)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &table)
	return report
}
