package modelagent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
)

// User is a user who is played by a model: it writes the messages to which the agent answers.
type User struct {
	Model *agent.Model `json:"model"`
	// Persona says who the user is, and Goal what they want. Both are templates, as prompts are.
	Persona string `json:"persona,omitempty"`
	Goal    string `json:"goal"`
	// Messages is how many messages the user writes at most; 0 means [defaultMessages]. The conversation
	// also ends when one of them contains Until, unless that is empty, or when the user says that it is over.
	Messages int    `json:"messages,omitempty"`
	Until    string `json:"until,omitempty"`
}

// defaultMessages is how many messages a user writes at most who has no limit of their own.
const defaultMessages = 10

func (u *User) messages() int { return cmp.Or(u.Messages, defaultMessages) }

// said is what a user has said, as their model was asked to say it.
type said struct {
	Message string `json:"message"`
	// Done says that the conversation is over, and Reached whether the user has what they wanted.
	Done    bool `json:"done"`
	Reached bool `json:"reached"`
	// Usage is what it has cost.
	Usage eval.Usage `json:"usage,omitzero"`
}

// The reasons why a conversation with a user is over.
const (
	endReached  = "reached"  // the user says that they have what they wanted
	endGivenUp  = "given-up" // the user says that they will not get it
	endPhrase   = "phrase"   // the user's message has the phrase
	endMessages = "messages" // the user has written as many messages as they may
)

// userSchema is that of what the model of a user answers.
var userSchema = json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"},"done":{"type":"boolean"},` +
	`"reached":{"type":"boolean"}},"required":["message","done","reached"],"additionalProperties":false}`)

const userInstructions = `You play a person who talks to an assistant. Stay in this role: you are the one who wants something.

Who you are: %s

What you want: %s

Answer with JSON: "message" is your next message to the assistant, in your own words, one thought at a time. "done" is true if the conversation is over: you have what you want, or you see that you will not get it. "reached" is true if you have what you want. If "done" is true, "message" may be empty.`

const userOpens = "(The conversation begins. Write your first message.)"

// parseUser reads the key "user".
func parseUser(r *input.Reader, f *input.Fields) *User {
	n := f.Optional("user", input.Object)
	if n == nil {
		return nil
	}
	o := r.Object(n)
	u := &User{Model: parseModel(r, o), Persona: text(r, o.Optional("persona", input.String)), Until: o.String("until", ""),
		Messages: o.Int("messages", 0, 1, 1000)}
	if goal := o.Required("goal", input.String); goal != nil {
		if u.Goal = text(r, goal); strings.TrimSpace(u.Goal) == "" {
			r.Errorf(goal, "expected what the user wants, got an empty text")
		}
	}
	o.Done()
	return u
}

// HasUser reports whether an entry has a user who is played.
func HasUser(e agent.Entry) bool {
	s, ok := e.Settings.(*Settings)
	return ok && s.User != nil
}

// texts is the [agent.Type].Texts of models: the endpoint of the user.
func texts(e agent.Entry) []string {
	if !HasUser(e) {
		return nil
	}
	m := e.Settings.(*Settings).User.Model
	return []string{m.URL, m.Key}
}

// conversation is the user's side of a conversation: what they are told and have said.
type conversation struct {
	question question
	messages int
	// over is the reason why the conversation is over; empty as long as it is not.
	over string
}

// newConversation makes the beginning of the user's side.
func (s *segment) newConversation() (*conversation, *fault.Fault) {
	u := s.a.settings.User
	persona, missing := fill(u.Persona, s.seg.Input)
	goal, lacking := fill(u.Goal, s.seg.Input)
	if missing = cmp.Or(missing, lacking); missing != "" {
		return nil, fault.Newf(fault.NotRunnable, "the user names {{%s}}, which the inputs lack", missing)
	}
	system := fmt.Sprintf(userInstructions, cmp.Or(strings.TrimSpace(persona), "an ordinary person"), goal)
	c := &conversation{question: question{Settings: &Settings{Output: &Output{Schema: userSchema}},
		model: u.Model.Name, system: s.a.opts.RedactText(system)}}
	api := model.API(u.Model.API)
	c.hear(api, userOpens)
	for _, one := range s.opening {
		if one.Role == "user" {
			c.add(api, said{Message: one.Content})
		} else {
			c.hear(api, one.Content)
		}
	}
	return c, nil
}

// hear adds what the user reads.
func (c *conversation) hear(api model.API, text string) {
	item, _ := jsonobj.Marshal(wires[api].message(Message{Role: "user", Content: text})) // strings always marshal
	c.question.items = append(c.question.items, item)
}

// add adds what the user has said.
func (c *conversation) add(api model.API, one said) {
	one.Usage = eval.Usage{}
	content, _ := jsonobj.Marshal(one) // texts always marshal
	item, _ := jsonobj.Marshal(wires[api].message(Message{Role: "assistant", Content: string(content)}))
	c.question.items = append(c.question.items, item)
}

// say adds what the user has said, and finds whether that is the end.
func (c *conversation) say(api model.API, u *User, one said) {
	c.messages++
	c.add(api, one)
	switch {
	case one.Done && one.Reached:
		c.over = endReached
	case one.Done:
		c.over = endGivenUp
	case u.Until != "" && strings.Contains(strings.ToLower(one.Message), strings.ToLower(u.Until)):
		c.over = endPhrase
	}
}

// askUser has the model of the user write their next message, and stores it before it is used.
func (l *loop) askUser(ctx context.Context) (*fault.Fault, error) {
	u, c := l.a.settings.User, l.user
	if c.messages >= u.messages() {
		return nil, l.userSaid(step{Step: stepUser, Over: endMessages})
	}
	base, unknown := l.a.opts.Expand(u.Model.URL)
	key, unknownKey := l.a.opts.Expand(u.Model.Key)
	if name := cmp.Or(unknown, unknownKey); name != "" {
		return fault.Newf(fault.Start, "the variable %s, which the model of the user needs, is not set", name), nil
	}
	if at, err := url.Parse(base); err != nil || at.Host == "" {
		return fault.New(fault.Start, "the URL of the model of the user is no URL"), nil
	}
	api := model.API(u.Model.API)
	request := &model.Call{Model: u.Model.Name, Base: strings.TrimSuffix(base, "/"), Key: strings.TrimSpace(key),
		Body: func(drop model.Dropped) (json.RawMessage, error) {
			q := c.question
			q.drop = drop
			return q.bytes(api)
		}}
	if err := l.a.userEndpoint.Ask(ctx, request); err != nil {
		f := failed(ctx, err)
		f.Message = "the user who is played: " + f.Message
		return f, nil
	}
	got, err := api.Read(request.Response)
	var one said
	if err == nil {
		err = json.Unmarshal([]byte(strings.TrimSpace(l.a.opts.RedactText(got.Text))), &one)
	}
	one.Message = l.a.opts.RedactText(one.Message) // JSON writes some characters of a secret in another way
	if err == nil && strings.TrimSpace(one.Message) == "" && !one.Done {
		err = fmt.Errorf("it has no message, and is not over")
	}
	if err != nil {
		return fault.Newf(fault.Model, "the user who is played has not answered as asked: %v; the answer begins %q", err,
			model.Short(got.Text+got.Refusal)), nil
	}
	if one.Usage = (eval.Usage{Unmetered: 1}); got.Usage != nil {
		one.Usage = *got.Usage
	}
	one.Usage.Model = u.Model.Name
	failpoint.Hit("model.userAnswered")
	return nil, l.userSaid(step{Step: stepUser, User: &one})
}

// userSaid stores what the user has said, and adds it to the conversation.
func (l *loop) userSaid(one step) error {
	if err := l.journal.add(one); err != nil {
		return err
	}
	failpoint.Hit("model.userStored")
	l.hearUser(one)
	return nil
}

// hearUser adds what the user has said to both sides of the conversation.
func (l *loop) hearUser(one step) {
	l.answer = nil
	c := l.user
	if one.User == nil {
		c.over = one.Over
	} else {
		c.say(model.API(l.a.settings.User.Model.API), l.a.settings.User, *one.User)
	}
	if !l.counted {
		l.countUser(one.User)
	}
	if one.User == nil || one.User.Message == "" {
		return
	}
	l.said = append(l.said, Message{Role: "user", Content: one.User.Message})
	if c.over != "" {
		return
	}
	if !l.recorded {
		l.trail.Add(record.EventPrompt, "", one.User.Message, object{"role": "user", "simulated": true})
	}
	item, _ := jsonobj.Marshal(wires[l.a.api].message(Message{Role: "user", Content: one.User.Message}))
	l.question.items = append(l.question.items, item)
}

// countUser counts a message of the user apart from what the agent uses.
func (l *loop) countUser(one *said) {
	if l.info.User == nil {
		l.info.User = &record.SimulatedUser{}
	}
	u := l.info.User
	u.Ended = l.user.over
	if one != nil {
		u.Messages++
		u.Usage = eval.MergeUsage(append(u.Usage, one.Usage)...)
	}
}

// conversed is the output of a conversation with a user, unless it is JSON by a schema: the last answer,
// everything that was said, and why it is over.
func (l *loop) conversed() agent.Outcome {
	l.info.StopReason = l.user.over
	if l.a.settings.Output != nil {
		return l.output(l.last)
	}
	said := l.said
	for i := range said {
		said[i].Content = l.a.opts.RedactText(said[i].Content)
	}
	out, err := jsonobj.Marshal(struct {
		Content  string    `json:"content"`
		Messages []Message `json:"messages"`
		EndedBy  string    `json:"endedBy"`
	}{l.a.opts.RedactText(l.last), said, l.user.over})
	if err != nil {
		return agent.Outcome{Fault: fault.New(fault.InvalidUTF8, err.Error())}
	}
	return agent.Outcome{Output: out}
}

// userIsNext reports whether the user has to say something: the agent has given an answer that calls
// nothing, or nobody has said anything yet. An answer with which a conversation cannot go on is no such
// answer.
func (l *loop) userIsNext() bool {
	if l.user == nil || len(l.waiting) > 0 {
		return false
	}
	if a := l.answer; a != nil {
		return len(a.Calls) == 0 && a.Stop != "pause_turn" && a.Refusal == "" && !a.Truncated && strings.TrimSpace(a.Text) != ""
	}
	return len(l.question.items) == 0
}
