package mcp

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// nameParams are the params that the header Mcp-Name repeats. The Go SDK does not send the header
// for those of tasks, so it is not required there.
var nameParams = map[string]struct {
	param    string
	required bool
}{
	"tools/call": {"name", true}, "prompts/get": {"name", true}, "resources/read": {"uri", true},
	MethodTasksGet: {"taskId", false}, MethodTasksUpdate: {"taskId", false}, MethodTasksCancel: {"taskId", false},
}

// checkHeaders checks a modern message, and that the headers of its POST say the same.
func checkHeaders(header http.Header, m message, meta jsonobj.Object) *Error {
	version, claimed := header.Get(headerVersion), meta.Text(MetaProtocolVersion)
	switch {
	case version == "":
		return Errorf(CodeHeaderMismatch, "the header %s is missing", headerVersion)
	case claimed != "" && claimed != version:
		return Errorf(CodeHeaderMismatch, "the header %s is %q, but _meta says %q", headerVersion, version, claimed)
	case version != Version2026_07_28:
		return unsupportedVersion(version)
	case m.IsResponse():
		return nil
	}
	method := header.Get(headerMethod)
	if method != m.Method && (method != "" || m.IsRequest()) {
		return Errorf(CodeHeaderMismatch, "the header %s is %q, but the method is %q", headerMethod, method, m.Method)
	}
	if !m.IsRequest() {
		return nil
	}
	if err := checkMeta(m.Method, meta); err != nil {
		return err
	}
	if named, ok := nameParams[m.Method]; ok {
		name, isText := jsonobj.Unquote(jsonobj.Get(m.Params, named.param))
		stated := header.Values(headerName)
		switch {
		case len(stated) == 0 && (!isText || !named.required):
			return nil // the handler reports missing params
		case len(stated) == 0:
			return Errorf(CodeHeaderMismatch, "the header %s is missing", headerName)
		}
		decoded, ok := decodeHeader(stated[0])
		if !isText || stated[0] != name && (!ok || decoded != name) {
			return Errorf(CodeHeaderMismatch, "the header %s is %q, but params.%s is %q",
				headerName, stated[0], named.param, name)
		}
	}
	return nil
}

// The sentinel around a header's value that is not plain ASCII (SEP-2243).
const (
	sentinelStart = "=?base64?"
	sentinelEnd   = "?="
)

// decodeHeader decodes the value of a header. It returns false if the sentinel is there but no
// base64 in it.
func decodeHeader(value string) (string, bool) {
	inner, ok := strings.CutPrefix(value, sentinelStart)
	if !ok {
		return value, true
	}
	if inner, ok = strings.CutSuffix(inner, sentinelEnd); !ok {
		return value, true
	}
	text, err := base64.StdEncoding.DecodeString(inner)
	return string(text), err == nil
}

// CheckParamHeaders checks that the Mcp-Param-* headers of a request repeat those arguments of a
// tool for which its input schema says so by x-mcp-header. The error is -32020. Requests of Legacy
// and of stdio, whose header is nil, have no such headers.
func CheckParamHeaders(header http.Header, inputSchema, arguments json.RawMessage) *Error {
	if header.Get(headerVersion) != Version2026_07_28 {
		return nil
	}
	schema, err := jsonobj.ParseObject(inputSchema)
	if err != nil {
		return nil // the server's fault, which no header should report
	}
	args, _ := jsonobj.ParseObject(arguments)
	return checkParams(header, schema.Object("properties"), args, "")
}

func checkParams(header http.Header, properties, args jsonobj.Object, path string) *Error {
	for _, property := range properties {
		schema, _ := jsonobj.ParseObject(property.Value)
		value := args.Get(property.Key)
		if name := schema.Text("x-mcp-header"); name != "" {
			if err := checkParam(header, headerParam+name, path+property.Key, value); err != nil {
				return err
			}
		}
		if inner := schema.Object("properties"); len(inner) > 0 {
			nested, _ := jsonobj.ParseObject(value)
			if err := checkParams(header, inner, nested, path+property.Key+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkParam checks one header against the argument that it repeats.
func checkParam(header http.Header, name, param string, value json.RawMessage) *Error {
	stated := header.Values(name)
	expected, isPlain := plainText(value)
	switch {
	case len(stated) == 0 && (jsonobj.IsNull(value) || !isPlain):
		return nil
	case len(stated) == 0:
		return Errorf(CodeHeaderMismatch, "the header %s for the argument %s is missing", name, param)
	case jsonobj.IsNull(value):
		return Errorf(CodeHeaderMismatch, "the header %s is there, but not the argument %s", name, param)
	}
	decoded, ok := decodeHeader(stated[0])
	if !ok {
		return Errorf(CodeHeaderMismatch, "the header %s is not valid base64", name)
	}
	if number, isNumber := safeInteger(decoded); isNumber && value[0] != '"' {
		decoded = number
	}
	if !isPlain || decoded != expected {
		return Errorf(CodeHeaderMismatch, "the header %s is %q, which is not the argument %s", name, stated[0], param)
	}
	return nil
}

// plainText is an argument as a header writes it: strings, booleans and integers that every client
// can represent have a plain text.
func plainText(value json.RawMessage) (string, bool) {
	switch {
	case len(value) == 0:
		return "", false
	case value[0] == '"':
		return jsonobj.Unquote(value)
	case string(value) == "true", string(value) == "false":
		return string(value), true
	}
	return safeInteger(string(value))
}

// safeInteger writes an integer in its only spelling, 1.0 and 1e0 as 1.
func safeInteger(text string) (string, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53-1 {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}
