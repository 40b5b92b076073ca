package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/internal/peers/fakejudge"
)

// judging is the provider that a script has started.
type judging struct{ *fakejudge.Server }

type judgeKey struct{}

// judge start starts a provider whose model prefers the longer of two answers, and answers calls of a tool
// that it plays with the number of the request. judge hold makes its
// batches go on until judge release. judge asked N checks how many questions the model has got so far,
// judge batches N of how many batches it knows, judge heard REGEXP that it was sent a matching text.
func cmdJudge(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 2 && (!neg || args[0] == "heard") || len(args) == 1 && !neg, "judge start|hold|release, judge asked|batches N, [!] judge heard REGEXP")
	j := ts.Value(judgeKey{}).(*judging)
	count := func(got int) {
		want, err := strconv.Atoi(args[1])
		ts.Check(err)
		if got != want {
			ts.Fatalf("%s: %d, want %d", args[0], got, want)
		}
	}
	switch args[0] {
	case "start":
		var err error
		var number atomic.Int64
		j.Server, err = fakejudge.Start(func(q fakejudge.Request) fakejudge.Reply {
			if n := number.Add(1); q.Tool == "answer_call" && !strings.Contains(q.Prompt, "refuse") {
				return fakejudge.Reply{Arguments: map[string]any{"result": fmt.Sprintf(`{"answer": %d}`, n), "isError": strings.Contains(q.Prompt, "nobody")}}
			}
			return preferTheLonger(q)
		})
		ts.Check(err)
		ts.Defer(func() { _ = j.Close() })
		for name, value := range j.Environ() {
			ts.Setenv(name, value)
		}
	case "hold", "release":
		j.HoldBatches(args[0] == "hold")
	case "asked":
		count(len(j.Requests()))
	case "batches":
		count(len(j.Batches()))
	case "heard":
		heard, text := false, regexp.MustCompile(args[1])
		for _, body := range j.Bodies() {
			heard = heard || text.Match(body)
		}
		if heard == neg {
			ts.Fatalf("heard %s: %t", args[1], heard)
		}
	default:
		ts.Fatalf("judge knows no %s", args[0])
	}
}

var twoAnswers = regexp.MustCompile(`(?s)<a-\w+>\n(.*)\n</a-\w+>.*<b-\w+>\n(.*)\n</b-\w+>`)

func preferTheLonger(q fakejudge.Request) fakejudge.Reply {
	label := "tie"
	if m := twoAnswers.FindStringSubmatch(q.Prompt); m == nil {
		return fakejudge.Reply{Refusal: "there are no two answers"}
	} else if a, b := len(m[1]), len(m[2]); a > b {
		label = "A"
	} else if a < b {
		label = "B"
	}
	return fakejudge.Reply{Arguments: map[string]any{"justification": "by length", "label": label, "cannotBeJudged": false}}
}
