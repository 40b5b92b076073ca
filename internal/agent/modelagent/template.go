package modelagent

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// placeholder matches {{name}} and {{name.member}}.
var placeholder = regexp.MustCompile(`\{\{\s*([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)\s*\}\}`)

// fill puts values of the inputs in the places of a template, in one pass: a value is never a
// template itself. missing is the first name that the inputs lack.
func fill(template string, inputs json.RawMessage) (filled, missing string) {
	filled = placeholder.ReplaceAllStringFunc(template, func(place string) string {
		name := placeholder.FindStringSubmatch(place)[1]
		value, ok := find(inputs, strings.Split(name, "."))
		if !ok {
			if missing == "" {
				missing = name
			}
			return place
		}
		return value
	})
	return filled, missing
}

// find follows members and the numbers of elements. A string is returned as it is, anything else as
// JSON.
func find(value json.RawMessage, path []string) (string, bool) {
	for _, key := range path {
		var members map[string]json.RawMessage
		var items []json.RawMessage
		switch n, err := strconv.Atoi(key); {
		case json.Unmarshal(value, &members) == nil && members[key] != nil:
			value = members[key]
		case err == nil && json.Unmarshal(value, &items) == nil && n >= 0 && n < len(items):
			value = items[n]
		default:
			return "", false
		}
	}
	var text string
	if json.Unmarshal(value, &text) == nil && string(value) != "null" {
		return text, true
	}
	return string(value), true
}
