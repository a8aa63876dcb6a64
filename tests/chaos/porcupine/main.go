// Judges histories of topics with porcupine, an independent checker of linearizability.
//
// Standard input has one history per line: {"calls": [{"process", "called", "returned", "op", "partitions", "answer"}]}.
// Times are in ns; "returned" null: the call is open, it may take effect at any later time, or never. "answer" null:
// nobody knows whether it took effect. Else it has "code", a Kafka error's name, and "id", the topic's, "" if untold.
// Standard output has one word for each: ok, illegal, or unknown if the search took longer than the time given.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const searchTime = 10 * time.Second

type answer struct {
	Code string `json:"code"`
	ID   string `json:"id"`
}

type call struct {
	Process    string  `json:"process"`
	Called     int64   `json:"called"`
	Returned   *int64  `json:"returned"`
	Op         string  `json:"op"`
	Partitions int     `json:"partitions"`
	Answer     *answer `json:"answer"`
}

// topic is the state of a name: whether there is one, and its id if its maker was told.
type topic struct {
	there bool
	id    string
}

// next gives the states that may follow; told has the ids that makers were told.
func next(told map[string]bool, state topic, asked call) []any {
	changed := topic{}
	possible := state.there
	if asked.Op == "create" {
		possible = !state.there
		changed.there = true
		if asked.Answer != nil {
			changed.id = asked.Answer.ID
		}
	}
	if asked.Answer == nil {
		if possible {
			return []any{state, changed}
		}
		return []any{state}
	}
	switch asked.Answer.Code {
	case "NONE":
		if !possible || (asked.Op == "delete" && !mayBe(told, state.id, asked.Answer.ID)) {
			return nil
		}
		return []any{changed}
	case "TOPIC_ALREADY_EXISTS":
		if asked.Op == "create" && state.there {
			return []any{state}
		}
	case "UNKNOWN_TOPIC_OR_PARTITION":
		if asked.Op == "delete" && !state.there {
			return []any{state}
		}
	}
	return nil
}

// mayBe says whether a topic whose id is known as `known`, "" if not, may have this id, "" if it was not told.
func mayBe(told map[string]bool, known string, id string) bool {
	return id == "" || known == id || (known == "" && !told[id])
}

func judge(calls []call) porcupine.CheckResult {
	told := map[string]bool{}
	processes := map[string]int{}
	operations := []porcupine.Operation{}
	for _, one := range calls {
		if one.Op == "create" && one.Answer != nil && one.Answer.Code == "NONE" && one.Answer.ID != "" {
			told[one.Answer.ID] = true
		}
		if _, known := processes[one.Process]; !known {
			processes[one.Process] = len(processes)
		}
		returned := int64(math.MaxInt64)
		if one.Returned != nil {
			returned = *one.Returned
		}
		operations = append(operations, porcupine.Operation{
			ClientId: processes[one.Process], Input: one, Call: one.Called, Output: one.Answer, Return: returned,
		})
	}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{topic{}} },
		Step: func(state, input, _ any) []any { return next(told, state.(topic), input.(call)) },
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), operations, searchTime)
}

func main() {
	words := map[porcupine.CheckResult]string{porcupine.Ok: "ok", porcupine.Illegal: "illegal", porcupine.Unknown: "unknown"}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	for lines.Scan() {
		var history struct {
			Calls []call `json:"calls"`
		}
		if problem := json.Unmarshal(lines.Bytes(), &history); problem != nil {
			fmt.Fprintf(os.Stderr, "no history: %v\n", problem)
			os.Exit(1)
		}
		fmt.Println(words[judge(history.Calls)])
	}
	if problem := lines.Err(); problem != nil {
		fmt.Fprintln(os.Stderr, problem)
		os.Exit(1)
	}
}
