// Command speed compares what 1,000 questions to a model cost: with a plain loop in Go, with evalrun,
// with promptfoo, and with Inspect, all asking the same server, which answers after 50 ms. The script run
// installs the other two and runs it.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	questions = flag.Int("n", 1000, "ask `N` questions")
	atOnce    = flag.Int("j", 64, "ask `N` at once")
	latency   = flag.Duration("latency", 50*time.Millisecond, "how long the model takes")
	promptfoo = flag.String("promptfoo", "", "the entry point of promptfoo")
	node      = flag.String("node", "node", "the program that runs promptfoo")
	inspect   = flag.String("inspect", "", "the program inspect")
	turns     = flag.Int("turns", 200, "how many turns the loop with bash has")
)

func main() {
	flag.Parse()
	if err := compare(); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
}

func compare() error {
	dir, err := os.MkdirTemp("", "evalrun-speed")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server := httptest.NewServer(http.HandlerFunc(answer))
	defer server.Close()
	program := filepath.Join(dir, "evalrun")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/evalrun").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	if err := writeFiles(dir, server.URL); err != nil {
		return err
	}
	bare := plainLoop(server.URL)
	fmt.Printf("%d questions, %d at once, %v for an answer\n\n", *questions, *atOnce, *latency)
	fmt.Printf("| | wall | of the loop's | CPU | memory |\n|---|---|---|---|---|\n| a loop in Go | %.2f s | 1.00 | | |\n", bare.Seconds())
	at := func(name string) string { return filepath.Join(dir, name) }
	jobs := fmt.Sprint(*atOnce)
	for _, one := range []struct {
		name string
		args []string
		skip bool
	}{
		{"evalrun", []string{program, "run", "--store", at("store"), "-j", jobs, at("set.json")}, false},
		{"promptfoo", []string{*node, *promptfoo, "eval", "-c", at("promptfoo.json"), "-j", jobs, "--no-cache", "--no-table", "--no-progress-bar",
			"--no-write"}, *promptfoo == ""},
		{"Inspect", []string{*inspect, "eval", "task.py", "--model", "openai/m1", "-M", "responses_api=false", "--model-base-url",
			server.URL + "/v1", "--max-connections", jobs, "--max-samples", jobs, "--display", "none", "--log-dir", at("logs")}, *inspect == ""},
	} {
		if one.skip {
			fmt.Printf("| %s | not there | | | |\n", one.name)
			continue
		}
		used, err := measure(dir, one.args)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Printf("| %s | %.2f s | %.2f | %.2f s | %d MB |\n", one.name, used.wall.Seconds(), used.wall.Seconds()/bare.Seconds(),
			used.cpu.Seconds(), used.memory>>10)
	}
	return loop(dir, program)
}

// answer is the model.
func answer(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Messages []struct {
			Role string `json:"role"`
		} `json:"messages"`
		Tools []any `json:"tools"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	message := `{"role":"assistant","content":"four"}`
	reason := "stop"
	if len(in.Tools) == 0 {
		time.Sleep(*latency)
	} else if said := 0; true {
		for _, m := range in.Messages {
			if m.Role == "assistant" {
				said++
			}
		}
		if said < wanted {
			reason, message = "tool_calls", fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"bash","arguments":"{\"command\":\"true\"}"}}]}`, said)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"m1","choices":[{"index":0,"finish_reason":%q,"message":%s}],`+
		`"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}`, reason, message) // the client may have gone
}

// wanted is how many turns of a loop the model wants.
var wanted int

// plainLoop is the least that asking takes.
func plainLoop(url string) time.Duration {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *atOnce}}
	began := time.Now()
	todo := make(chan int)
	var all sync.WaitGroup
	for range *atOnce {
		all.Go(func() {
			for n := range todo {
				body := fmt.Sprintf(`{"model":"m1","messages":[{"role":"user","content":"What is %d + 2?"}]}`, n)
				response, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					panic(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
	for n := range *questions {
		todo <- n
	}
	close(todo)
	all.Wait()
	return time.Since(began)
}

func writeFiles(dir, url string) error {
	var evaluations, tests []any
	var lines bytes.Buffer
	for n := range *questions {
		question := fmt.Sprintf("What is %d + 2?", n)
		evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", n), "name": fmt.Sprint("e", n), "inputs": map[string]any{"question": question},
			"evaluationCriterias": map[string]any{"says": map[string]any{"searchText": "four"}}})
		tests = append(tests, map[string]any{"vars": map[string]any{"question": question}, "assert": []any{map[string]any{"type": "contains", "value": "four"}}})
		_ = json.NewEncoder(&lines).Encode(map[string]any{"input": question, "target": "four"})
	}
	set := map[string]any{"version": "1.0", "id": "speed", "name": "Speed", "evaluations": evaluations,
		"agent":      map[string]any{"type": "model", "model": map[string]any{"url": url + "/v1", "name": "m1"}, "prompt": "{{question}}"},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says", "targetOutputKey": "content"}}}}
	loop := map[string]any{"version": "1.0", "id": "loop", "name": "Loop", "evaluations": []any{map[string]any{"id": "a", "name": "a", "inputs": map[string]any{"prompt": "Work."}, "evaluationCriterias": map[string]any{}}},
		"agent": map[string]any{"type": "model", "tools": []string{"bash"}, "turns": 100000, "model": map[string]any{"url": url + "/v1", "name": "m1"}}}
	other := map[string]any{"prompts": []string{"{{question}}"}, "tests": tests,
		"providers": []any{map[string]any{"id": "openai:chat:m1", "config": map[string]any{"apiBaseUrl": url + "/v1", "apiKey": "none"}}}}
	task := `from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

@task
def speed():
    return Task(dataset=json_dataset("questions.jsonl"), solver=generate(), scorer=includes())
`
	for name, v := range map[string]any{"set.json": set, "loop.json": loop, "promptfoo.json": other, "task.py": task, "questions.jsonl": lines.String()} {
		data, ok := v.(string)
		if !ok {
			encoded, err := json.Marshal(v)
			if err != nil {
				return err
			}
			data = string(encoded)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// used is what a program has used. memory is in KiB.
type used struct {
	wall, cpu time.Duration
	memory    int64
}

func measure(dir string, args []string) (used, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "OPENAI_API_KEY=none", "PROMPTFOO_DISABLE_TELEMETRY=1", "PROMPTFOO_DISABLE_UPDATE=1",
		"PROMPTFOO_CONFIG_DIR="+filepath.Join(dir, "promptfoo"), "EVALRUN_STORE=")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return used{}, fmt.Errorf("%w\n%s", err, out[max(0, len(out)-2000):])
	}
	rusage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return used{time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), rusage.Maxrss}, nil
}

// loop measures what a step of a loop with bash costs over the command itself: the difference of two
// conversations, one longer than the other, with a model that answers at once.
func loop(dir, program string) error {
	var took [2]time.Duration
	for i, n := range []int{*turns / 10, *turns} {
		wanted = n
		one, err := measure(dir, []string{program, "run", "--store", filepath.Join(dir, fmt.Sprint("loop", i)), "--isolation", "process", "--allow-unscored", filepath.Join(dir, "loop.json")})
		if err != nil {
			return err
		}
		took[i] = one.wall
	}
	began := time.Now()
	for range *turns {
		if err := exec.Command("bash", "-c", "true").Run(); err != nil {
			return err
		}
	}
	command := time.Since(began) / time.Duration(*turns)
	step := (took[1] - took[0]) / time.Duration(*turns-*turns/10)
	fmt.Printf("\nA step of a loop takes %.2f ms, of which bash itself is %.2f ms.\n", step.Seconds()*1e3, command.Seconds()*1e3)
	return nil
}
