package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// clientTool describes the headers of a tool's calls (SEP-2243).
type clientTool struct {
	headers []clientParamHeader
	invalid error // if not nil, the error in its annotations
}

// clientParamHeader says which argument is repeated in a header.
type clientParamHeader struct {
	path []string
	name string // without Mcp-Param-
}

// addStandard adds the headers of Modern that repeat parts of the body.
func (l *httpLink) addStandard(h http.Header, m message) error {
	if m.Method == "" {
		return nil
	}
	h.Set("Mcp-Method", clientHeaderValue(m.Method))
	key := ""
	switch {
	case m.Method == MethodToolsCall || m.Method == "prompts/get":
		key = "name"
	case m.Method == "resources/read":
		key = "uri"
	case strings.HasPrefix(m.Method, "tasks/"):
		key = "taskId"
	}
	name, ok := jsonobj.Unquote(jsonobj.Get(m.Params, key))
	if ok {
		h.Set("Mcp-Name", clientHeaderValue(name))
	}
	if m.Method != MethodToolsCall {
		return nil
	}
	l.mu.Lock()
	tool := l.tools[name]
	l.mu.Unlock()
	if tool.invalid != nil {
		return fmt.Errorf("the tool %q cannot be called: %w", name, tool.invalid)
	}
	for _, header := range tool.headers {
		arguments, _ := jsonobj.ParseObject(jsonobj.Get(m.Params, "arguments"))
		if value, ok := header.value(arguments); ok {
			h.Set("Mcp-Param-"+header.name, value)
		}
	}
	return nil
}

// value returns the value of a header for the arguments of a call. There is none for an argument
// that is missing or null.
func (p clientParamHeader) value(arguments jsonobj.Object) (string, bool) {
	last := len(p.path) - 1
	for _, key := range p.path[:last] {
		arguments = arguments.Object(key)
	}
	raw := arguments.Get(p.path[last])
	if jsonobj.IsNull(raw) {
		return "", false
	}
	if text, ok := jsonobj.Unquote(raw); ok {
		return clientHeaderValue(text), true
	}
	if s := string(raw); s == "true" || s == "false" {
		return s, true
	}
	return clientInteger(raw)
}

// clientInteger returns a JSON number in decimal, if it is an integer that every JSON parser reads
// as the same.
func clientInteger(raw json.RawMessage) (string, bool) {
	if len(raw) > 32 || !jsonobj.Valid(raw) {
		return "", false
	}
	f, _, err := big.ParseFloat(string(raw), 10, 256, big.ToNearestEven)
	if err != nil || !f.IsInt() || new(big.Float).Abs(f).Cmp(big.NewFloat(1<<53-1)) > 0 {
		return "", false
	}
	n, _ := f.Int64()
	return fmt.Sprint(n), true
}

// clientHeaderValue encodes a text so that it survives in a header. It encodes the empty text too,
// since to many a server and proxy an empty header is as good as none.
func clientHeaderValue(text string) string {
	const prefix, suffix = "=?base64?", "?="
	encoded := strings.HasPrefix(text, prefix) && strings.HasSuffix(text, suffix)
	plain := text != "" && text == strings.Trim(text, " ") && !encoded
	for i := range len(text) {
		plain = plain && text[i] >= ' ' && text[i] <= '~'
	}
	if plain {
		return text
	}
	return prefix + base64.StdEncoding.EncodeToString([]byte(text)) + suffix
}

// rememberTools keeps what calls need of the tools in a result of tools/list.
func (l *httpLink) rememberTools(result json.RawMessage) {
	list, _ := jsonobj.ParseObject(result)
	var tools []json.RawMessage
	if json.Unmarshal(list.Get("tools"), &tools) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, raw := range tools {
		tool, err := jsonobj.ParseObject(raw)
		if err != nil {
			continue
		}
		var t clientTool
		t.collect(tool.Object("inputSchema"), nil)
		if t.headers == nil && t.invalid == nil {
			delete(l.tools, tool.Text("name"))
		} else {
			l.tools[tool.Text("name")] = t
		}
	}
}

// collect finds the annotated properties of a schema, however deep.
func (t *clientTool) collect(schema jsonobj.Object, path []string) {
	for _, property := range schema.Object("properties") {
		inner, err := jsonobj.ParseObject(property.Value)
		if err != nil {
			continue
		}
		path := append(slices.Clip(path), property.Key)
		if inner.Has("x-mcp-header") {
			t.annotate(inner, path)
		}
		t.collect(inner, path)
	}
}

func (t *clientTool) annotate(property jsonobj.Object, path []string) {
	name, _ := jsonobj.Unquote(property.Get("x-mcp-header"))
	same := func(other clientParamHeader) bool { return strings.EqualFold(other.name, name) }
	at := strings.Join(path, ".")
	switch {
	case !isHeaderName(name):
		t.invalid = fmt.Errorf("x-mcp-header %s of %s in its inputSchema is no header name", property.Get("x-mcp-header"), at)
	case !slices.Contains([]string{"string", "integer", "boolean"}, property.Text("type")):
		t.invalid = fmt.Errorf("x-mcp-header of %s in its inputSchema is only for a string, an integer or a boolean", at)
	case slices.ContainsFunc(t.headers, same):
		t.invalid = fmt.Errorf("x-mcp-header %q comes twice in its inputSchema", name)
	}
	t.headers = append(t.headers, clientParamHeader{path, name})
}

// isHeaderName reports whether a text is a token of RFC 9110.
func isHeaderName(name string) bool {
	for i := range len(name) {
		b := name[i]
		if (b < '0' || b > '9') && (b|0x20 < 'a' || b|0x20 > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(b)) {
			return false
		}
	}
	return name != ""
}
