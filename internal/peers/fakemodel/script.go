package fakemodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// script is the behaviour that a user's text asks of the model.
type script struct {
	calls  []scriptedCall
	say    string
	sleep  time.Duration
	status int
	// results is how many tools have answered since.
	results int
}

type scriptedCall struct {
	tool *regexp.Regexp
	args json.RawMessage
}

// answer is the model's next output: a tool call if there is one, otherwise the text.
type answer struct {
	text string
	call *Call
}

var directive = regexp.MustCompile(`\[\[(CALL|SAY|SLEEP|ERR)\s`)

// parseScript reads the last text of the user that holds a directive, or for which others has some.
// Without one the model has nothing to do.
func parseScript(history []Message, others func(string) string) (script, error) {
	s := script{say: "There is no directive in what you say."}
	for i := len(history) - 1; i >= 0; i-- {
		m := history[i]
		if m.Role == "user" && others != nil && !directive.MatchString(m.Text) {
			m.Text = others(m.Text)
		}
		if m.Role == "user" && directive.MatchString(m.Text) {
			s.say = "done"
			return s, s.parse(m.Text)
		}
		s.results += len(m.Results)
	}
	s.results = 0
	return s, nil
}

func (s *script) parse(text string) error {
	for {
		at := directive.FindStringSubmatchIndex(text)
		if at == nil {
			return nil
		}
		name, rest := text[at[2]:at[3]], text[at[1]:]
		var err error
		if name == "CALL" {
			rest, err = s.parseCall(rest)
		} else {
			rest, err = s.parseOther(name, rest)
		}
		if err != nil {
			return fmt.Errorf("directive %s: %w", name, err)
		}
		text = rest
	}
}

// parseCall reads a tool and its arguments, which may themselves hold ]].
func (s *script) parseCall(text string) (rest string, err error) {
	text = strings.TrimLeft(text, " \t\r\n")
	end := strings.IndexAny(text, " \t\r\n")
	if closing := strings.Index(text, "]]"); closing >= 0 && (end < 0 || closing < end) {
		end = closing
	}
	if end < 0 {
		return "", fmt.Errorf("expected ]] at its end")
	}
	tool, err := compileTool(text[:end])
	if err != nil {
		return "", err
	}
	args := json.RawMessage("{}")
	text = strings.TrimLeft(text[end:], " \t\r\n")
	if !strings.HasPrefix(text, "]]") {
		dec := json.NewDecoder(strings.NewReader(text))
		if err := dec.Decode(&args); err != nil {
			return "", fmt.Errorf("the arguments of %s: %w", tool, err)
		}
		text = strings.TrimLeft(text[dec.InputOffset():], " \t\r\n")
	}
	rest, ok := strings.CutPrefix(text, "]]")
	if !ok {
		return "", fmt.Errorf("expected ]] after the arguments of %s", tool)
	}
	s.calls = append(s.calls, scriptedCall{tool, args})
	return rest, nil
}

var serverAndTool = regexp.MustCompile(`^([\w-]+)\.([\w-]+)$`)

// compileTool compiles the pattern for a tool's name. server.tool matches whatever name an agent
// makes of the two.
func compileTool(pattern string) (*regexp.Regexp, error) {
	if m := serverAndTool.FindStringSubmatch(pattern); m != nil {
		pattern = m[1] + `[\W_]*` + m[2] + "$"
	}
	return regexp.Compile(pattern)
}

func (s *script) parseOther(name, text string) (rest string, err error) {
	value, rest, ok := strings.Cut(text, "]]")
	if !ok {
		return "", fmt.Errorf("expected ]] at its end")
	}
	if name == "SAY" {
		s.say = value
		return rest, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(value))
	switch {
	case err != nil:
		return "", err
	case name == "SLEEP":
		s.sleep = time.Duration(n) * time.Millisecond
	case n < 400 || n > 599:
		return "", fmt.Errorf("expected an HTTP status from 400 to 599, got %d", n)
	default:
		s.status = n
	}
	return rest, nil
}

// next is the model's next step: the first call that has no result yet, then the text.
func (s *script) next(r Request) answer {
	if s.results >= len(s.calls) {
		return answer{text: s.say}
	}
	c := s.calls[s.results]
	for _, name := range r.Tools {
		if c.tool.MatchString(name) {
			return answer{call: &Call{Name: name, Args: c.args}}
		}
	}
	return answer{text: fmt.Sprintf("None of the %d tools matches %s.", len(r.Tools), c.tool)}
}
