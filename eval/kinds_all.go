package eval

import "fmt"

// All has every kind. An evaluator that is in none of these lists does not exist.
var All = union(uipathKinds, judgedKinds, commandKinds)

func union(lists ...Kinds) Kinds {
	all := Kinds{}
	for _, list := range lists {
		for name, kind := range list {
			if _, twice := all[name]; twice {
				panic(fmt.Sprintf("two kinds of evaluators are called %s", name))
			}
			all[name] = kind
		}
	}
	return all
}
