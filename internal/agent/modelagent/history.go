package modelagent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
)

// The values of [Settings].History.
const (
	historyCut     = "cut"
	historySummary = "summary"
)

// summaryRequest asks for a summary of everything that is before it.
const summaryRequest = `[The conversation has become too long. Everything above but your task will be left out, and a summary that you write now stands in its place. Write down all that you need to go on: what you have done and found out, with names, paths, numbers and errors as they are, what is left to do, and what must not be done again. Call no tool, and answer with the summary alone.]`

// shorten leaves the older half of the answers out of the next requests, with the results of their
// calls, since the conversation is longer than the context of the model. By choice the model is first
// asked for a summary of them; that it is to be asked is durable before.
func (l *loop) shorten() error {
	l.full, l.tooLong = false, false
	n := len(l.begins) / 2
	if l.a.settings.History != historySummary || l.summarising > 0 { // a request for a summary may be too long itself
		return l.leaveOut(n, "")
	}
	if err := l.journal.add(step{Step: stepSummarise, Answers: n}); err != nil {
		return err
	}
	failpoint.Hit("model.summarises")
	l.summarise(n)
	return nil
}

// summarise makes the next request one for a summary of the oldest answers.
func (l *loop) summarise(n int) { l.full, l.asked, l.summarising = false, false, n }

// summaryQuestion is the request for a summary. It begins with the bytes of the requests before.
func (l *loop) summaryQuestion() question {
	q, settings := l.question, *l.question.Settings
	settings.Output = nil
	q.Settings = &settings
	q.items = append(slices.Clone(q.items[:l.begins[l.summarising]]), l.says(summaryRequest))
	return q
}

// summarised takes the answer to the request for a summary. One without a text leaves the answers out
// without a summary.
func (l *loop) summarised(got model.Reply) error {
	failpoint.Hit("model.summarised")
	text := strings.TrimSpace(l.a.opts.RedactText(got.Text))
	if got.Refusal != "" {
		text = ""
	}
	return l.leaveOut(l.summarising, text)
}

// leaveOut makes durable that the oldest answers are left out, with the summary of them.
func (l *loop) leaveOut(n int, summary string) error {
	if err := l.journal.add(step{Step: stepCut, Answers: n, Summary: summary}); err != nil {
		return err
	}
	failpoint.Hit("model.cut")
	l.cut(n, summary)
	return nil
}

// cut leaves out the oldest answers. A message says so in their place.
func (l *loop) cut(n int, summary string) {
	if !l.recorded {
		l.info.AnswersLeftOut += n
		update := object{"answersLeftOut": n}
		if summary != "" {
			l.info.Summaries++
			update["summary"] = summary
		}
		l.trail.Add(record.EventUpdate, "", "", update)
	}
	l.left += n
	l.full, l.asked, l.summarising = false, false, 0 // the next request is another one now
	note := fmt.Sprintf("[The first %d of your answers, with the results of their calls, are left out here: "+
		"the conversation was too long.", l.left)
	if summary != "" {
		note += " This is your summary of them.]\n\n" + summary
	} else {
		note += "]"
	}
	kept := l.question.items[l.begins[n]:]
	items := append(slices.Clone(l.question.items[:l.first]), l.says(note))
	moved := l.begins[n] - len(items)
	l.question.items = append(items, kept...)
	l.begins = slices.Clone(l.begins[n:])
	for i := range l.begins {
		l.begins[i] -= moved
	}
}

// says makes an item of a text that the model is told.
func (l *loop) says(text string) []byte {
	item, _ := jsonobj.Marshal(wires[l.a.api].message(Message{Role: "user", Content: text})) // strings always marshal
	return item
}
