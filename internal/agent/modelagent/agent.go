// Package modelagent runs a model as an agent: one exchange, whose answer is the output, or with
// tools a loop of answers and commands in the sandbox, which another process goes on with at the
// step at which this one was killed. It asks through package model, as judges do, and knows nothing
// of scores.
package modelagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
)

// modelAgent is a model with its prompts.
type modelAgent struct {
	entry    agent.Entry
	settings *Settings
	opts     agent.Options
	api      model.API
	endpoint *model.Endpoint
	client   *http.Client
	// userEndpoint is that of the user who is played; nil if there is none.
	userEndpoint *model.Endpoint
}

// mostAtOnce is how many requests may be in flight at once. The slots of the run set a lower limit.
const mostAtOnce = 1000

// New makes an agent from an entry of type model.
func New(e agent.Entry, o agent.Options) agent.Agent { return newAgent(e, o, nil) }

// newAgent makes an agent that waits with pause; nil waits by the clock.
func newAgent(e agent.Entry, o agent.Options, pause func(context.Context, time.Duration) error) *modelAgent {
	if o.Now == nil {
		o.Now = time.Now
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = mostAtOnce, mostAtOnce
	client := &http.Client{Transport: transport}
	api := model.API(e.Model.API)
	options := model.Options{Client: client, Pause: pause, Now: o.Now}
	a := &modelAgent{entry: e, settings: e.Settings.(*Settings), opts: o, api: api, client: client,
		endpoint: model.NewEndpoint(e.Name, model.Provider{API: api, Concurrency: mostAtOnce}, options)}
	if u := a.settings.User; u != nil {
		a.userEndpoint = model.NewEndpoint(e.Name+" user",
			model.Provider{API: model.API(u.Model.API), Concurrency: mostAtOnce}, options)
	}
	return a
}

// Close implements [agent.Agent].
func (a *modelAgent) Close() error {
	a.client.CloseIdleConnections()
	return nil
}

// Run implements [agent.Agent].
func (a *modelAgent) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	seg.LimitTo(time.Duration(a.entry.Timeout), time.Duration(a.entry.Timeout), agent.TimeoutOfEntry)
	ctx, clock, stop := toolserver.NewClock(ctx, seg.Timeout, seg.TimeoutFault())
	defer stop()
	if ctx.Err() != nil {
		return agent.Outcome{Fault: agent.CauseFault(ctx)}, nil
	}
	s := &segment{a: a, seg: seg, clock: clock, info: &record.Info{}, usage: record.NewUsageLog(seg.Dir),
		trail: record.OpenTrajectory(seg.Dir, a.opts.Redact, a.opts.Now)}
	out, err := s.run(ctx)
	s.info.HeldMs = clock.Waited().Milliseconds()
	if seg.Ended != nil {
		seg.Ended()
	}
	if err = errors.Join(err, s.trail.Close(), s.usage.Close()); err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", a.entry.Name, err)
	}
	out.Info = s.info
	if out.Fault != nil {
		out.Fault.Message = a.opts.RedactText(out.Fault.Message)
	}
	out.Files, err = record.FilesIn(seg.Dir, record.FileTrajectory, record.FileTrace, record.FileUsage, FileJournal,
		fileSetup)
	return out, err
}

// segment is one run of the agent.
type segment struct {
	a     *modelAgent
	seg   agent.Segment
	clock *toolserver.Clock
	info  *record.Info
	usage *record.UsageLog
	trail *record.Trajectory

	base, key string
	question  question
	// opening has the first messages, as they are sent.
	opening []Message
	// tooLong says that the last request was longer than the context of the model.
	tooLong bool
	// batched says that the answer that is read has come in a batch.
	batched bool
}

func (s *segment) run(ctx context.Context) (agent.Outcome, error) {
	if f := s.begin(); f != nil {
		return agent.Outcome{Fault: f}, nil
	}
	if s.loops() {
		return s.runLoop(ctx)
	}
	got, _, waits, f, err := s.next(ctx, 1)
	if waits {
		return s.askInBatch(1)
	}
	if f != nil || err != nil {
		return agent.Outcome{Fault: f}, err
	}
	if got.Text != "" {
		s.trail.Say(record.EventMessage, "", got.Text)
	}
	return s.end(got), nil
}

// begin resolves the endpoint and makes the first messages. Secrets of the run are taken out of
// what a third party will read.
func (s *segment) begin() (f *fault.Fault) {
	m, o := s.a.entry.Model, s.a.opts
	if s.base, s.key, f = resolveEndpoint(s.a.entry, o); f != nil {
		return f
	}
	set := s.a.settings
	messages := set.Messages
	switch {
	case messages != nil:
	case set.User != nil && set.Prompt == "": // who opens the conversation
	case set.Prompt != "":
		messages = []Message{{Role: "user", Content: set.Prompt}}
	default:
		messages = []Message{{Role: "user", Content: "{{prompt}}"}}
	}
	system, missing := fill(set.System, s.seg.Input)
	s.question = question{Settings: set, model: m.Name, system: o.RedactText(system)}
	begins := s.seg.Number == 1 || len(s.seg.History) == 0 && len(set.Tools) > 0
	if system != "" && begins {
		s.trail.Add(record.EventPrompt, "", system, object{"role": "system"})
	}
	d := &folder{dir: s.seg.BaseDir, api: s.a.api}
	for _, one := range messages {
		content := s.seg.Prompt
		var lacking string
		var item object
		switch {
		case one.Parts != nil:
			how := lookInto
			if s.goesOn() { // with the files as they were
				how = lookNot
			}
			var parts []sent
			var err error
			if parts, lacking, err = d.parts(one, s.seg.Input, how); err != nil {
				return fault.Newf(fault.NotRunnable, "the prompt: %v", err)
			}
			for i := range parts {
				parts[i].text = o.RedactText(parts[i].text)
				if f := parts[i].file; f != nil {
					f.url = o.RedactText(f.url)
				}
			}
			content, item = shown(parts), wires[s.a.api].parts(parts)
			one.Content = o.RedactText(content)
		default:
			if set.Prompt != "" || set.Messages != nil {
				content, lacking = fill(one.Content, s.seg.Input)
			}
			one.Content = o.RedactText(content)
			item = wires[s.a.api].message(one)
		}
		missing = cmp.Or(missing, lacking)
		if begins {
			s.trail.Add(record.EventPrompt, "", content, object{"role": one.Role})
		}
		raw, err := jsonobj.Marshal(item)
		if err != nil {
			return fault.Newf(fault.NotRunnable, "the prompt cannot be written as JSON: %v", err)
		}
		one.Parts = nil
		s.question.items, s.opening = append(s.question.items, raw), append(s.opening, one)
	}
	s.question.fileBytes = int(d.all)
	if missing != "" {
		return fault.Newf(fault.NotRunnable, "the prompt names {{%s}}, which the inputs lack", missing)
	}
	return nil
}

// goesOn reports whether the conversation is that of an earlier attempt or segment, which its journal has.
func (s *segment) goesOn() bool {
	return s.loops() && (s.seg.GoesOnFrom != "" || len(s.seg.History) > 0)
}

// loops reports whether there is a conversation, and not one exchange.
func (s *segment) loops() bool { return len(s.a.settings.Tools) > 0 || s.a.settings.User != nil }

// resolveEndpoint returns the URL of a model, without a slash at its end, and its key.
func resolveEndpoint(e agent.Entry, o agent.Options) (base, key string, f *fault.Fault) {
	base, unknown := o.Expand(e.Model.URL)
	key, unknownKey := o.Expand(e.Model.Key)
	if name := cmp.Or(unknown, unknownKey); name != "" {
		return "", "", fault.Newf(fault.Start, "the variable %s, which the model needs, is not set", name)
	}
	if u, err := url.Parse(base); err != nil || u.Host == "" {
		return "", "", fault.Newf(fault.Start, "the URL of the model is no URL")
	}
	return strings.TrimSuffix(base, "/"), strings.TrimSpace(key), nil
}

// ask makes one request, and counts its usage before anything is made of the answer. A fault beside
// a call is that of the budget; without a call there is no answer.
func (s *segment) ask(ctx context.Context) (model.Reply, *model.Call, *fault.Fault, error) {
	c := &model.Call{Model: s.a.entry.Model.Name, Base: s.base, Key: s.key,
		Body: func(drop model.Dropped) (json.RawMessage, error) {
			q := s.question
			q.drop = drop
			return q.bytes(s.a.api)
		}}
	if err := s.a.endpoint.Ask(ctx, c); err != nil {
		s.tooLong = isTooLong(err)
		return model.Reply{}, nil, failed(ctx, err), nil
	}
	return s.read(c)
}

// read reads the answer of a call, as ask returns it.
func (s *segment) read(c *model.Call) (model.Reply, *model.Call, *fault.Fault, error) {
	got, err := s.a.api.Read(c.Response)
	if err != nil {
		return got, nil, fault.Newf(fault.Model, "the answer of the model is not what its API promises: %v", err), nil
	}
	if len(c.Dropped) > 0 {
		s.trail.Add(record.EventUpdate, "", "", object{"dropped": c.Dropped})
	}
	broken := model.ErrorIn(c.Response)
	if broken == "" || got.Usage != nil {
		if err := s.count(got); err != nil {
			return got, nil, nil, err
		}
	}
	if broken != "" {
		return got, nil, fault.New(fault.Model, "the provider has failed in the middle of its answer: "+broken), nil
	}
	return got, c, s.seg.Budget.Exceeded(s.info.Usage), nil
}

// count counts the usage of an answer. One of a batch counts once, however many attempts read it.
func (s *segment) count(got model.Reply) error {
	if s.batched {
		if counted, err := s.counted(); counted || err != nil {
			return err
		}
	}
	used := eval.Usage{Unmetered: 1}
	if got.Usage != nil {
		used = *got.Usage
	}
	used.Model = s.a.entry.Model.Name
	used = s.priced(used, s.batched)
	s.info.Usage, s.info.UsageSource = eval.MergeUsage(append(s.info.Usage, used)...), record.UsageOfProxy
	s.trail.Add(record.EventUsage, "", "", used)
	return s.usage.Append(used)
}

// tooLong are parts of the messages of providers about a conversation that is longer than the
// context of a model.
var tooLong = []string{"context_length_exceeded", "context length", "context window", "prompt is too long",
	"exceeds the maximum number of tokens"}

// isTooLong reports whether a request was refused because the conversation is too long.
func isTooLong(err error) bool {
	var known *model.Error
	return errors.As(err, &known) && known.Kind == model.Invalid &&
		saysTooLong(known.Message)
}

// saysTooLong reports whether a message of a provider says so.
func saysTooLong(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc(tooLong, func(part string) bool { return strings.Contains(message, part) })
}

func tooLongFault(message string) *fault.Fault {
	return fault.New(fault.AgentError, "the conversation is longer than the model's context: "+message)
}

// failed returns the fault of a request without an answer.
func failed(ctx context.Context, err error) *fault.Fault {
	var known *model.Error
	switch {
	case !errors.As(err, &known):
		return agent.CauseFault(ctx)
	case isTooLong(err):
		return tooLongFault(known.Message)
	}
	return fault.New(fault.Model, known.Message)
}

// end makes the outcome of the last answer.
func (s *segment) end(got model.Reply) agent.Outcome {
	s.info.StopReason = got.Stop
	s.trail.Add(record.EventStop, "", "", object{"stopReason": got.Stop})
	switch limit := s.a.settings.MaxTokens; {
	case got.Refusal != "":
		return agent.Outcome{Fault: fault.New(fault.AgentError, "the model refuses to answer: "+model.Short(got.Refusal))}
	case got.Truncated && limit > 0:
		return agent.Outcome{Fault: fault.Newf(fault.OutputLimit,
			"the answer was cut off at its limit of tokens (maxTokens: %d)", limit)}
	case got.Truncated:
		return agent.Outcome{Fault: fault.New(fault.OutputLimit,
			"the answer was cut off at its limit of tokens; maxTokens raises it")}
	case len(got.Calls) > 0:
		return agent.Outcome{Fault: fault.Newf(fault.Protocol, "the model has called the tool %q, and has none",
			model.Short(got.Calls[0].Name))}
	case strings.TrimSpace(got.Text) == "":
		return agent.Outcome{Fault: fault.New(fault.NoOutput, "the model's answer is empty")}
	}
	return s.output(got.Text)
}

// output makes the output of a text.
func (s *segment) output(text string) agent.Outcome {
	text = s.a.opts.RedactText(text)
	if s.a.settings.Output == nil {
		out, err := jsonobj.Marshal(struct {
			Content string `json:"content"`
		}{text})
		if err != nil {
			return agent.Outcome{Fault: fault.New(fault.InvalidUTF8, err.Error())}
		}
		return agent.Outcome{Output: out}
	}
	raw := json.RawMessage(strings.TrimSpace(text))
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return agent.Outcome{Fault: fault.Newf(fault.InvalidOutput, "the answer is not JSON: %v; it begins %q", err,
			model.Short(text))}
	}
	schema, err := resolve(s.a.settings.Output.Schema)
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		return agent.Outcome{Fault: fault.Newf(fault.InvalidOutput, "the answer does not keep to output.schema: %v", err)}
	}
	return agent.Outcome{Output: raw}
}
