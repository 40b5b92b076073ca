package web

import (
	"encoding/json"
	"fmt"
	"math"
	"net/mail"
	"net/url"
	"regexp"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// limits are the rules of a JSON schema for one value of a form, besides its type.
type limits struct {
	Minimum          *float64 `json:"minimum"`
	Maximum          *float64 `json:"maximum"`
	ExclusiveMinimum *float64 `json:"exclusiveMinimum"`
	ExclusiveMaximum *float64 `json:"exclusiveMaximum"`
	MultipleOf       *float64 `json:"multipleOf"`
	MinLength        *int     `json:"minLength"`
	MaxLength        *int     `json:"maxLength"`
	Pattern          string   `json:"pattern"`
	Format           string   `json:"format"`
}

// ofNumber says what was expected of a number that does not fit.
func (l limits) ofNumber(text string) error {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return err
	}
	expected := func(what string, limit *float64) error {
		return fmt.Errorf("expected %s %s, got %s", what, strconv.FormatFloat(*limit, 'g', -1, 64), text)
	}
	switch {
	case l.Minimum != nil && n < *l.Minimum:
		return expected("at least", l.Minimum)
	case l.Maximum != nil && n > *l.Maximum:
		return expected("at most", l.Maximum)
	case l.ExclusiveMinimum != nil && n <= *l.ExclusiveMinimum:
		return expected("more than", l.ExclusiveMinimum)
	case l.ExclusiveMaximum != nil && n >= *l.ExclusiveMaximum:
		return expected("less than", l.ExclusiveMaximum)
	case l.MultipleOf != nil && *l.MultipleOf > 0 && math.Mod(n, *l.MultipleOf) != 0:
		return expected("a multiple of", l.MultipleOf)
	}
	return nil
}

// ofText says what was expected of a text that does not fit.
func (l limits) ofText(text string) error {
	n := utf8.RuneCountInString(text)
	switch {
	case l.MinLength != nil && n < *l.MinLength:
		return fmt.Errorf("expected at least %s, got %d", counted(*l.MinLength, "character"), n)
	case l.MaxLength != nil && n > *l.MaxLength:
		return fmt.Errorf("expected at most %s, got %d", counted(*l.MaxLength, "character"), n)
	}
	if l.Pattern != "" {
		// An invalid pattern is a mistake of whoever asked, and refuses nothing.
		if p, err := regexp.Compile(l.Pattern); err == nil && !p.MatchString(text) {
			return fmt.Errorf("expected a text of the form %s", l.Pattern)
		}
	}
	bad := false
	switch l.Format {
	case "email":
		a, err := mail.ParseAddress(text)
		bad = err != nil || a.Address != text
	case "uri":
		u, err := url.Parse(text)
		bad = err != nil || u.Scheme == ""
	case "date":
		_, err := time.Parse(time.DateOnly, text)
		bad = err != nil
	case "date-time":
		_, err := time.Parse(time.RFC3339, text)
		bad = err != nil
	}
	if bad {
		return fmt.Errorf("expected %s", map[string]string{
			"email": "an e-mail address", "uri": "an address with its scheme, as https://example.org",
			"date": "a date as 2026-01-31", "date-time": "a time as 2026-01-31T12:00:00Z",
		}[l.Format])
	}
	return nil
}

// fits checks an answer against the whole schema of the question, which may demand more than each
// field knows. A schema that is invalid refuses nothing.
func fits(schema, value json.RawMessage) error {
	if schema == nil {
		return nil
	}
	s := new(jsonschema.Schema)
	if json.Unmarshal(schema, s) != nil {
		return nil
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil //nolint:nilerr // whoever asks so has to take any answer
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	return resolved.Validate(v)
}
