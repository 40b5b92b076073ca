package pyvalue

import (
	"fmt"
	"regexp"
	"strconv"
)

// pathToken is one step of a target output path: a key, or an index in brackets.
var pathToken = regexp.MustCompile(`([^.\[\]]+)|\[([0-9]+)\]`)

// IsPath reports whether a text has a step of a path in it.
func IsPath(text string) bool { return pathToken.MatchString(text) }

// Resolve follows a target output path such as a.b[0].c; "*" means the whole value.
func Resolve(v any, path string) (any, error) {
	if path == "*" {
		return v, nil
	}
	tokens := pathToken.FindAllStringSubmatch(path, -1)
	if len(tokens) == 0 {
		return nil, fmt.Errorf("invalid path %q", path)
	}
	for _, token := range tokens {
		var err error
		if v, err = step(v, token[1], token[2]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func step(v any, key, index string) (any, error) {
	if index != "" {
		list, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("[%s] needs an array, got %s", index, KindOf(v))
		}
		i, err := strconv.Atoi(index)
		if err != nil || i >= len(list) {
			return nil, fmt.Errorf("[%s] is out of range: the length of the array is %d", index, len(list))
		}
		return list[i], nil
	}
	o, ok := v.(*Object)
	if !ok {
		return nil, fmt.Errorf("%q needs an object, got %s", key, KindOf(v))
	}
	value, ok := o.Values[key]
	if !ok {
		return nil, fmt.Errorf("%q is not there", key)
	}
	return value, nil
}
