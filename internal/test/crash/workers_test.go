package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// askingFunction and askingGraph ask twice, and say in a file what they have begun, and in which process.
const askingFunction = `
import os


def say(stage):
    with open("begun.log", "a") as file:
        file.write(f"{os.environ['EVALRUN_WORKSPACE']} {stage} {os.getpid()}\n")


def main(inputs, evalrun):
    file = os.path.join(evalrun["workspace"], "heard")
    heard = open(file).read() if os.path.exists(file) else ""
    heard += "".join(sorted(evalrun["resume"] or {}))
    say(len(heard) // 2)
    if heard == "q0q1":
        return {"heard": heard}
    with open(file + ".new", "w") as out:
        out.write(heard)
    os.replace(file + ".new", file)
    return {"__interrupt__": [{"id": f"q{len(heard) // 2}", "value": {"title": "Go on?"}}]}
`

const askingGraph = `
import os
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt


class State(TypedDict, total=False):
    heard: str


def say(stage):
    with open("begun.log", "a") as file:
        file.write(f"{os.environ['EVALRUN_WORKSPACE']} {stage} {os.getpid()}\n")


def first(state):
    return {"heard": "q0" if interrupt({"title": "Go on?"}) else ""}


def begin(state):
    say(0)


def middle(state):
    say(1)


def second(state):
    return {"heard": state["heard"] + ("q1" if interrupt({"title": "Go on?"}) else "")}


def end(state):
    say(2)


graph = StateGraph(State)
names = [begin, first, middle, second, end]
for node in names:
    graph.add_node(node)
graph.add_edge(START, "begin").add_edge("begin", "first").add_edge("first", "middle")
graph.add_edge("middle", "second").add_edge("second", "end").add_edge("end", END)
`

// Given rollouts of a plain function and of a graph that ask twice, when evalrun and its workers are killed at random
// moments, then all of them end with what was answered, and no segment that was committed is run again.
func TestWorkersKilledAtRandom(t *testing.T) {
	testenv.NeedLong(t)
	testenv.NeedPython(t)
	graphs, err := filepath.Abs("../../../fixtures/langgraph/.venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	seed := number(t, "EVALRUN_CRASH_SEED", 1)
	for kind, one := range map[string]map[string]any{
		"function": {"type": "python", "entrypoint": "agent.py:main", "name": "asks"},
		"graph":    {"type": "langgraph", "entrypoint": "agent.py:graph", "name": "asks", "python": graphs},
	} {
		t.Run(kind, func(t *testing.T) {
			text := askingFunction
			if kind == "graph" {
				text = askingGraph
				if _, err := os.Stat(graphs); err != nil {
					testenv.Need(t, testenv.LangGraph, fmt.Errorf("there is no virtual environment, see fixtures/langgraph/README.md: %w", err))
				}
			}
			const perRun = 4
			for i := range max(kills(t)/perRun/2, 1) {
				random := rand.New(rand.NewPCG(uint64(seed), uint64(i))) //nolint:gosec // it is to be repeated
				killWorkers(t, text, one, random, perRun)
			}
		})
	}
}

func killWorkers(t *testing.T, text string, entry map[string]any, random *rand.Rand, times int) {
	s := emptyScenario(t, "failpoint")
	s.total, s.results = 6, 1
	if err := os.WriteFile(filepath.Join(s.dir, "agent.py"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var evaluations []map[string]any
	for i := range s.total {
		evaluations = append(evaluations, map[string]any{"id": strconv.Itoa(i), "name": strconv.Itoa(i), "inputs": map[string]any{},
			"evaluationCriterias": map[string]any{"e": map[string]any{"expectedOutput": map[string]any{"heard": "q0q1"}}}})
	}
	s.write("set.json", map[string]any{"version": "1.0", "id": "s", "name": "S", "agent": entry, "evaluations": evaluations,
		"evaluators": []any{map[string]any{"id": "e", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "e"}}},
		"answers":    []any{map[string]any{"match": map[string]any{}, "payload": true}},
		"retry":      map[string]any{"max": 50, "on": []string{"exit", "start"}, "backoff": "1ms"}})
	for range times {
		cmd := s.command()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }() // killed, or done
		// A moment of the process's life, not a wait for something: it is killed whatever it is doing then.
		alive := true
		for worker := random.IntN(2) == 1; alive; worker = false { // a worker alone is killed first, and evalrun always
			select {
			case <-ended:
				alive = false
			case <-time.After(time.Duration(random.IntN(2500)) * time.Millisecond):
				if worker {
					s.killWorker()
					continue
				}
				_ = cmd.Process.Kill()
				<-ended
				alive = false
			}
		}
	}
	s.finish()
	st := s.open()
	defer st.Close()
	note := t.Errorf
	if err := st.Snapshot(t.Context(), runID, func(v store.View) error {
		if run := v.Run(); !run.Final() || run.Counts.Total != s.total {
			note("the run is not final or has lost rollouts: %+v", run)
		}
		return v.Rollouts(func(o store.RolloutView) error {
			s.checkRollout(o, note)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	for _, one := range s.begun() {
		if one.stage < last[one.workspace] {
			t.Errorf("%s: stage %d was begun after stage %d", one.workspace, one.stage, last[one.workspace])
		}
		last[one.workspace] = one.stage
	}
	for workspace, stage := range last {
		if stage != 2 {
			t.Errorf("%s has ended in stage %d", workspace, stage)
		}
	}
	if len(last) != s.total {
		t.Errorf("%d rollouts have begun, want %d", len(last), s.total)
	}
}

// begunStage is a line that the agent has written.
type begunStage struct {
	workspace  string
	stage, pid int
}

func (s *scenario) begun() (out []begunStage) {
	data, err := os.ReadFile(filepath.Join(s.dir, "begun.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var one begunStage
		if _, err := fmt.Sscan(line, &one.workspace, &one.stage, &one.pid); err == nil { // the last line may be cut
			out = append(out, one)
		}
	}
	return out
}

// killWorker kills the worker that has begun a stage last, if it is still one.
func (s *scenario) killWorker() {
	all := s.begun()
	if len(all) == 0 {
		return
	}
	pid := all[len(all)-1].pid
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && cwd == s.dir {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
