package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/itchyny/gojq"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

// scriptCommands are the commands that the scripts have beside testscript's own.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"code":      cmdCode,
		"json":      cmdJSON,
		"schema":    cmdSchema,
		"get":       cmdGet,
		"start":     cmdStart,
		"interrupt": cmdInterrupt,
		"ended":     cmdEnded,
		"waitfor":   cmdWaitFor,
		"nowhere":   cmdNowhere,
		"silent":    cmdSilent,
		"served":    cmdServed,
		"judge":     cmdJudge,
	}
}

// code N PROGRAM ARGS… runs a program, which must end with the exit code N.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "code N PROGRAM ARGS…")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := exitCode(ts, ts.Exec(args[1], args[2:]...)); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func exitCode(ts *testscript.TestScript, err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	ts.Check(err)
	return 0
}

// schema NAME FILE checks that a JSON document is as its schema says.
func cmdSchema(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "schema NAME FILE")
	ts.Check(schemas.Validate(args[0], []byte(ts.ReadFile(args[1]))))
}

// json FILE EXPRESSION WANT checks that a jq expression over a JSON document, or over an array of
// JSON Lines, gives the JSON value WANT.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 3, "json FILE EXPRESSION WANT")
	var want any
	ts.Check(json.Unmarshal([]byte(args[2]), &want))
	got, wanted := compact(query(ts, args[0], args[1])), compact(want)
	if (got == wanted) == neg {
		ts.Fatalf("%s of %s is %s, want %s", args[1], args[0], got, wanted)
	}
}

// get NAME FILE EXPRESSION puts what a jq expression gives into an environment variable.
func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 3, "get NAME FILE EXPRESSION")
	got := query(ts, args[1], args[2])
	text, ok := got.(string)
	if !ok {
		text = compact(got)
	}
	ts.Setenv(args[0], text)
}

func query(ts *testscript.TestScript, file, expression string) any {
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(file)))
	var documents []any
	for {
		var v any
		err := dec.Decode(&v)
		if err != nil && len(documents) == 1 {
			v = documents[0]
		} else if err != nil {
			v = documents
		}
		if err == nil {
			documents = append(documents, v)
			continue
		}
		q, err := gojq.Parse(expression)
		ts.Check(err)
		got, _ := q.Run(v).Next()
		if err, ok := got.(error); ok {
			ts.Fatalf("%s: %v", expression, err)
		}
		return got
	}
}

func compact(v any) string {
	data, _ := json.Marshal(v) // it came from JSON
	return string(data)
}

type backgroundKey struct{}

// background is a program that a script has started.
type background struct {
	cmd    *exec.Cmd
	stdout *os.File
	stderr *os.File
}

// start NAME PROGRAM ARGS… starts a program in the background. Its streams go to NAME.stdout and
// NAME.stderr.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "start NAME PROGRAM ARGS…")
	name := args[0]
	program := args[1]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, program); !strings.Contains(program, "/") && input.IsFile(path) {
			program = path
		}
	}
	b := &background{cmd: exec.Command(program, args[2:]...)}
	var err error
	b.stdout, err = os.Create(ts.MkAbs(name + ".stdout"))
	ts.Check(err)
	b.stderr, err = os.Create(ts.MkAbs(name + ".stderr"))
	ts.Check(err)
	b.cmd.Stdout, b.cmd.Stderr, b.cmd.Dir = b.stdout, b.stderr, ts.MkAbs(".")
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "WORK", "TERM", "GORACE", "EVALRUN_STORE", "XDG_STATE_HOME", "URL"} {
		if value := ts.Getenv(key); value != "" {
			b.cmd.Env = append(b.cmd.Env, key+"="+value)
		}
	}
	ts.Check(b.cmd.Start())
	ts.Value(backgroundKey{}).(map[string]*background)[name] = b
	ts.Defer(func() { _ = b.cmd.Process.Kill() }) // if the script fails before it has ended
}

// interrupt NAME sends SIGINT to a program that was started.
func cmdInterrupt(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "interrupt NAME")
	ts.Check(started(ts, args[0]).cmd.Process.Signal(os.Interrupt))
}

// ended NAME CODE waits for a program that was started, which must end with the exit code. stdout
// and stderr are then what it has printed.
func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "ended NAME CODE")
	b := started(ts, args[0])
	hang := time.AfterFunc(testenv.Patience, func() { _ = b.cmd.Process.Kill() })
	err := b.cmd.Wait()
	hung := !hang.Stop()
	ts.Check(errors.Join(b.stdout.Close(), b.stderr.Close()))
	_, _ = fmt.Fprint(ts.Stdout(), ts.ReadFile(args[0]+".stdout"))
	_, _ = fmt.Fprint(ts.Stderr(), ts.ReadFile(args[0]+".stderr"))
	if hung {
		ts.Fatalf("%s did not end", args[0])
	}
	if got := strconv.Itoa(exitCode(ts, err)); got != args[1] {
		ts.Fatalf("exit code %s, want %s", got, args[1])
	}
}

func started(ts *testscript.TestScript, name string) *background {
	b := ts.Value(backgroundKey{}).(map[string]*background)[name]
	if b == nil {
		ts.Fatalf("%s was not started", name)
	}
	return b
}

// waitfor FILE [REGEXP] waits until a file is there, and has text that matches.
func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 1 || len(args) == 2), "waitfor FILE [REGEXP]")
	pattern := regexp.MustCompile("(?m)" + strings.Join(args[1:], ""))
	var data []byte
	var err error
	if testenv.Eventually(func() bool {
		data, err = os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && pattern.Match(data)
	}) {
		return
	}
	ts.Fatalf("%s: nothing matches %s: %v\n%s", args[0], pattern, err, data)
}

// nowhere TEXT PATH… checks that no file at or under the paths has the text in it.
func cmdNowhere(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) >= 2, "nowhere TEXT PATH…")
	found := []string{}
	for _, path := range args[1:] {
		ts.Check(filepath.WalkDir(ts.MkAbs(path), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte(args[0])) {
				found = append(found, path)
			}
			return err
		}))
	}
	if (len(found) > 0) != neg {
		ts.Fatalf("%q found in %v", args[0], found)
	}
}

// silent NAME FILE starts a server that answers nothing, and puts its URL into an environment
// variable. At the first connection it makes the file.
func cmdSilent(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "silent NAME FILE")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	file := ts.MkAbs(args[1])
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_ = os.WriteFile(file, nil, 0o600) // the script waits for it
		}
	}()
	ts.Defer(func() {
		_ = l.Close()
		<-done
	})
	ts.Setenv(args[0], "http://"+l.Addr().String())
}

// served NAME FOLDER puts the URL of a server that has the files of a folder into an environment variable.
func cmdServed(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "served NAME FOLDER")
	server := httptest.NewServer(http.FileServer(http.Dir(ts.MkAbs(args[1]))))
	ts.Defer(server.Close)
	ts.Setenv(args[0], server.URL)
}

// acpAgentCommand is the command acpagent, which puts the program acp-agent into the PATH: an agent
// that speaks ACP and does what its prompt says (fixtures/acp-agent). The first script that has a
// use for it builds it in the folder.
func acpAgentCommand(dir string) func(*testscript.TestScript, bool, []string) {
	build := sync.OnceValue(func() error { return testenv.Build(dir, testenv.ACPAgent) })
	return func(ts *testscript.TestScript, neg bool, args []string) {
		usage(ts, !neg && len(args) == 0, "acpagent")
		ts.Check(build())
		ts.Setenv("PATH", dir+string(filepath.ListSeparator)+ts.Getenv("PATH"))
	}
}

func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

// likeTheirSchemas fails if a results document or an event that a script has left in a store does
// not keep to its schema.
func likeTheirSchemas(env *testscript.Env) {
	check := func(schema, path string, data []byte) {
		if err := schemas.Validate(schema, data); err != nil {
			env.T().Log(path, ": ", err)
			env.T().FailNow()
		}
	}
	err := filepath.WalkDir(env.WorkDir, func(path string, entry fs.DirEntry, err error) error {
		run := filepath.Base(filepath.Dir(filepath.Dir(path))) == "runs"
		if err != nil || !entry.Type().IsRegular() || !run {
			return nil //nolint:nilerr // what is gone is no document
		}
		data, err := os.ReadFile(path)
		switch entry.Name() {
		case "results.json":
			check("results", path, data)
		case "events.jsonl":
			for line := range bytes.Lines(data) {
				check("event", path, line)
			}
		}
		return err
	})
	if err != nil {
		env.T().Log(err)
		env.T().FailNow()
	}
}

// nothingLeft fails if a process is left that a script has started, directly or not: all of them
// have its WORK in their environment.
func nothingLeft(env *testscript.Env) {
	var left map[int]string
	if !testenv.Eventually(func() bool {
		left = testenv.Processes("WORK=" + env.WorkDir + "\x00")
		return len(left) == 0
	}) {
		env.T().Log("processes are left: ", left)
		env.T().FailNow()
	}
}
