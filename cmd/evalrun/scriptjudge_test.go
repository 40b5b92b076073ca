package main

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/internal/peers/fakejudge"
)

type judgeKey struct{}

// judge start starts a provider whose model prefers the longer of two answers. judge asked N checks
// how many questions it has got so far, judge heard TEXT that one of them has the text in it.
func cmdJudge(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 2 && !neg || len(args) == 2 && args[0] == "heard" || len(args) == 1 && args[0] == "start" && !neg, "judge start, judge asked N, [!] judge heard TEXT")
	if args[0] == "start" {
		server, err := fakejudge.Start(preferTheLonger)
		ts.Check(err)
		ts.Defer(func() { _ = server.Close() })
		for name, value := range server.Environ() {
			ts.Setenv(name, value)
		}
		ts.Value(judgeKey{}).(map[string]*fakejudge.Server)[""] = server
		return
	}
	server := ts.Value(judgeKey{}).(map[string]*fakejudge.Server)[""]
	if args[0] == "asked" {
		want, err := strconv.Atoi(args[1])
		ts.Check(err)
		if got := len(server.Requests()); got != want {
			ts.Fatalf("%d questions, want %d", got, want)
		}
		return
	}
	heard := false
	for _, q := range server.Requests() {
		heard = heard || regexp.MustCompile(args[1]).MatchString(fmt.Sprint(q.Body))
	}
	if heard == neg {
		ts.Fatalf("heard %s: %t", args[1], heard)
	}
}

var twoAnswers = regexp.MustCompile(`(?s)<a-(\w+)>\n(.*)\n</a-\w+>.*<b-\w+>\n(.*)\n</b-\w+>`)

func preferTheLonger(q fakejudge.Request) fakejudge.Reply {
	label := "tie"
	if m := twoAnswers.FindStringSubmatch(q.Prompt); m == nil {
		return fakejudge.Reply{Refusal: "there are no two answers"}
	} else if a, b := len(m[2]), len(m[3]); a > b {
		label = "A"
	} else if a < b {
		label = "B"
	}
	return fakejudge.Reply{Arguments: map[string]any{"justification": "by length", "label": label, "cannotBeJudged": false}}
}
