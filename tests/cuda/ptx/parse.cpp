/* SPDX-License-Identifier: Apache-2.0
 * PTX as nvcc writes it: a statement a line, except calls. */
#include "ptx.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ptx {

namespace {

[[noreturn]] void give_up(const std::string &kernel, const std::string &line)
{
	fprintf(stderr, "ptx: %s: cannot read \"%s\"\n", kernel.c_str(), line.c_str());
	abort();
}

std::string trimmed(const std::string &s)
{
	const size_t begin = s.find_first_not_of(" \t"), end = s.find_last_not_of(" \t;");
	return begin == std::string::npos || end == std::string::npos ? "" : s.substr(begin, end + 1 - begin);
}

/* a, {b, c}, [d+4] → three, whatever is in brackets together. */
std::vector<std::string> split(const std::string &s, char separator)
{
	std::vector<std::string> parts;
	std::string part;
	int depth = 0;
	for (char c : s) {
		depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
		if (c == separator && !depth) {
			parts.push_back(trimmed(part));
			part.clear();
		} else {
			part += c;
		}
	}
	if (!trimmed(part).empty())
		parts.push_back(trimmed(part));
	return parts;
}

size_t bytes_of(const std::string &type)
{
	return type == "pred" ? 1 : (size_t)atoi(type.c_str() + 1) / 8;
}

struct place {
	enum space space;
	int64_t at;
};

/* Walks one body, a function's inside its caller's. */
struct reader {
	kernel &k;
	const std::string &source;
	const std::map<std::string, size_t> &functions;
	std::map<std::string, int> rows, predicates, labels;
	std::map<std::string, place> places; /* of variables: parameters, shared, local */
	std::vector<std::pair<size_t, std::string>> jumps;
	int file = 0, line = 0, depth = 0;
	std::string prefix; /* of names inside a function that is called */

	int row_of(const std::string &name)
	{
		auto found = rows.find(name);
		if (found != rows.end())
			return found->second;
		return rows[name] = k.rows++;
	}
	int number_row(uint64_t value)
	{
		const int row = row_of("#" + std::to_string(value));
		k.numbers[row] = value;
		return row;
	}
	int predicate_of(const std::string &name)
	{
		auto found = predicates.find(prefix + name);
		if (found != predicates.end())
			return found->second;
		return predicates[prefix + name] = k.predicates++;
	}
	/* NULL: no variable. */
	const place *place_of(const std::string &name) const
	{
		auto found = places.find(prefix + name);
		if (found == places.end())
			found = places.find(name);
		return found == places.end() ? nullptr : &found->second;
	}
	int operand(const std::string &s)
	{
		static const std::map<std::string, special> specials = { { "%tid.x", special::TID_X }, { "%ntid.x", special::NTID_X },
			{ "%ctaid.x", special::CTAID_X }, { "%nctaid.x", special::NCTAID_X } };
		auto found = specials.find(s);
		if (found != specials.end()) {
			const int row = row_of(s);
			k.specials[row] = found->second;
			return row;
		}
		if (s[0] == '%')
			return row_of(prefix + s);
		if (s[0] == '0' && (s[1] == 'f' || s[1] == 'F' || s[1] == 'd' || s[1] == 'D'))
			return number_row(strtoull(s.c_str() + 2, nullptr, 16));
		if (const place *p = place_of(s))
			return number_row((uint64_t)p->at);
		char *end;
		const uint64_t value = s[0] == '-' ? (uint64_t)strtoll(s.c_str(), &end, 0) : strtoull(s.c_str(), &end, 0);
		if (end == s.c_str() || (*end && strcmp(end, "U")))
			give_up(k.name, s);
		return number_row(value);
	}
	/* [%rd1+4], [name+4], [%rd1]; the space too, where it is a variable's. */
	int address(const std::string &s, instruction &i)
	{
		const std::string inside = trimmed(s.substr(1, s.size() - 2));
		const size_t plus = inside.find('+');
		const std::string base = trimmed(inside.substr(0, plus));
		i.offset = plus == std::string::npos ? 0 : strtoll(inside.c_str() + plus + 1, nullptr, 0);
		if (base[0] == '%')
			return operand(base);
		const place *p = place_of(base);
		if (!p)
			give_up(k.name, s);
		i.space = p->space;
		i.offset += p->at;
		return number_row(0);
	}

	void declare(const std::string &text);
	void instruct(const std::string &text, const std::string &whole);
	void memory(instruction &i, const std::vector<std::string> &words, const std::vector<std::string> &operands, bool load);
	void call(const std::string &text);
	void body(size_t at);
};

/* .local .align 4 .b8 name[32], and .param .b64 name, of a call: as good as local. All shared memory of ours is dynamic. */
void reader::declare(const std::string &text)
{
	const std::vector<std::string> words = split(text, ' ');
	std::string name = words.back();
	size_t count = 1, align = 1, bytes = 1;
	const size_t bracket = name.find('[');
	if (bracket != std::string::npos) {
		count = strtoull(name.c_str() + bracket + 1, nullptr, 10);
		name.resize(bracket);
	}
	for (size_t i = 1; i + 1 < words.size(); i++)
		if (words[i] == ".align")
			align = strtoull(words[i + 1].c_str(), nullptr, 10);
		else if (words[i][0] == '.')
			bytes = bytes_of(words[i].substr(1));
	if (align < bytes)
		align = bytes;
	k.local_bytes = (k.local_bytes + align - 1) / align * align;
	places[prefix + name] = { space::LOCAL, (int64_t)k.local_bytes };
	k.local_bytes += count * bytes;
}

void reader::memory(instruction &i, const std::vector<std::string> &words, const std::vector<std::string> &operands, bool load)
{
	static const std::map<std::string, enum space> spaces = { { "global", space::GLOBAL }, { "shared", space::SHARED }, { "local", space::LOCAL },
		{ "param", space::PARAM } };
	for (size_t w = 1; w < words.size(); w++)
		if (spaces.count(words[w]))
			i.space = spaces.at(words[w]);
		else if (words[w] == "volatile")
			i.is_volatile = true;
		else if (words[w] == "v2" || words[w] == "v4")
			i.count = (uint8_t)(words[w][1] - '0');
		else if (words[w] == "nc")
			i.is_constant = true;
		else if (words[w] == "relaxed" || words[w] == "gpu" || words[w] == "cta")
			i.is_volatile |= words[w] == "relaxed";
		else if (w + 1 < words.size())
			give_up(k.name, words[w]);
	const std::string &type = words.back(), &where = operands[load ? 1 : 0], &what = operands[load ? 0 : 1];
	i.width = (uint8_t)bytes_of(type);
	i.is_signed = type[0] == 's';
	const std::vector<std::string> values = what[0] == '{' ? split(what.substr(1, what.size() - 2), ',') : std::vector<std::string>{ what };
	for (size_t v = 0; v < i.count; v++)
		i.row[v] = operand(values.at(v));
	i.row[4] = address(where, i);
}

void reader::instruct(const std::string &text, const std::string &whole)
{
	instruction i;
	std::string rest = text;
	k.text.push_back(std::make_unique<std::string>(whole));
	i.text = k.text.back()->c_str();
	i.file = file;
	i.line = line;
	if (rest[0] == '@') {
		i.guard_not = rest[1] == '!';
		const size_t space = rest.find(' ');
		i.guard = predicate_of(rest.substr(i.guard_not ? 2 : 1, space - (i.guard_not ? 2 : 1)));
		rest = trimmed(rest.substr(space));
	}
	const size_t space = rest.find_first_of(" \t");
	const std::string opcode = rest.substr(0, space);
	const std::vector<std::string> operands = space == std::string::npos ? std::vector<std::string>() : split(rest.substr(space), ',');
	const std::vector<std::string> words = split(opcode, '.');
	i.run = find_action(opcode, &i.flow);
	i.is_move = words[0] == "mov" || words[0] == "cvta";
	if (!i.run)
		give_up(k.name, whole);
	if (words[0] == "bra") {
		jumps.push_back({ k.code.size(), prefix + operands.at(0) });
	} else if (words[0] == "ld" || words[0] == "st") {
		memory(i, words, operands, words[0] == "ld");
	} else {
		int rows = 0, preds = 0;
		for (const std::string &o : operands) {
			if (o[0] == '[') {
				i.row[rows++] = address(o, i);
				if (words[0] == "cp" && i.offset)
					give_up(k.name, whole); /* two addresses, one place for an offset */
			} else if (o[0] == '{' && words[0] == "wgmma" && i.sums.empty()) {
				for (const std::string &part : split(o.substr(1, o.size() - 2), ','))
					i.sums.push_back(operand(part));
			} else if (o[0] == '{') {
				i.unpacks = rows == 0;
				for (const std::string &part : split(o.substr(1, o.size() - 2), ','))
					i.row[rows++] = operand(part);
			} else if (o.compare(0, 2, "%p") == 0) {
				i.predicate[preds++] = predicate_of(o);
			} else if (opcode == "mov.pred" && (o == "0" || o == "-1")) {
				if (o != "0")
					i.run = find_action("not.pred", &i.flow);
				i.predicate[preds++] = predicate_of("#0"); /* nobody writes it */
			} else if (opcode == "mov.pred") {
				give_up(k.name, whole);
			} else if (o.find('|') != std::string::npos) {
				i.row[rows++] = operand(o.substr(0, o.find('|')));
				i.predicate[preds++] = predicate_of(o.substr(o.find('|') + 1));
			} else if (opcode == "cp.async.wait_group" || opcode == "wgmma.wait_group.sync.aligned") {
				i.offset = strtoll(o.c_str(), nullptr, 0);
			} else {
				i.row[rows++] = operand(o);
			}
			if (rows > 16 || preds > 3)
				give_up(k.name, whole);
		}
		i.count = (uint8_t)rows;
	}
	k.code.push_back(i);
}

/* call.uni (retval0), name, (param0, param1): the function's body stands here, its parameters are the caller's. */
void reader::call(const std::string &text)
{
	static int calls;
	const std::vector<std::string> parts = split(text.substr(text.find('(')), ',');
	const std::string &name = parts.at(1);
	auto found = functions.find(name);
	if (found == functions.end() || !prefix.empty())
		give_up(k.name, text);
	const std::string inside = "call" + std::to_string(calls++) + ":";
	const std::vector<std::string> results = split(parts[0].substr(1, parts[0].size() - 2), ','), arguments = split(parts.at(2).substr(1, parts[2].size() - 2), ',');
	for (size_t i = 0; i < results.size(); i++)
		places[inside + "func_retval" + std::to_string(i)] = *place_of(results[i]);
	for (size_t i = 0; i < arguments.size(); i++)
		places[inside + name + "_param_" + std::to_string(i)] = *place_of(arguments[i]);
	prefix = inside;
	body(source.find('{', found->second));
	labels[inside + "$return"] = (int)k.code.size();
	prefix.clear();
}

void reader::body(size_t at)
{
	const int outside = depth;
	std::string pending; /* a call that goes on */
	do {
		size_t end = source.find('\n', at);
		std::string text = source.substr(at, end - at);
		at = end + 1;
		text = trimmed(text.substr(0, text.find("//")));
		for (char &c : text)
			c = c == '\t' ? ' ' : c;
		if (!pending.empty() || text.compare(0, 4, "call") == 0) {
			pending += text + (text == ")" ? "" : " ");
			if (text != ")")
				continue;
			call(pending);
			pending.clear();
		} else if (text == "{" || text == "}") {
			depth += text == "{" ? 1 : -1;
		} else if (text.compare(0, 5, ".loc ") == 0) {
			sscanf(text.c_str(), ".loc %d %d", &file, &line);
		} else if (text.compare(0, 6, ".local") == 0 || text.compare(0, 6, ".param") == 0) {
			declare(text);
		} else if (!text.empty() && text.back() == ':') {
			labels[prefix + text.substr(0, text.size() - 1)] = (int)k.code.size();
		} else if (text == "ret" && !prefix.empty()) {
			instruct("bra.uni $return", text);
		} else if (!text.empty() && text[0] != '.') {
			instruct(text, text);
		}
	} while (depth > outside);
}

}

module::module(std::string text) : source(std::move(text))
{
	for (size_t at = 0; at < source.size();) {
		const size_t end = source.find('\n', at);
		const std::string line = source.substr(at, end - at);
		size_t word;
		int number;
		if (sscanf(line.c_str(), ".target sm_%d", &number) == 1) {
			machine.capability = number;
		} else if (line.compare(0, 15, ".extern .shared") == 0) {
			dynamic = line.substr(line.rfind(' ') + 1, line.find('[') - line.rfind(' ') - 1);
		} else if ((word = line.find(".entry ")) != std::string::npos) {
			entries[line.substr(word + 7, line.find('(', word) - word - 7)] = at;
		} else if (line.find(".func ") != std::string::npos) {
			const size_t name = line.rfind(' ') + 1;
			if (line.back() == '(') /* else it is only announced */
				functions[line.substr(name, line.size() - 1 - name)] = at;
		} else if (sscanf(line.c_str(), "\t.file\t%d", &number) == 1 || sscanf(line.c_str(), ".file %d", &number) == 1) {
			const size_t quote = line.find('"');
			files[number] = line.substr(quote + 1, line.find('"', quote + 1) - quote - 1);
		}
		at = end == std::string::npos ? source.size() : end + 1;
	}
}

void module::read(kernel &k, size_t begin)
{
	const size_t brace = source.find("\n{", begin) + 1;
	const std::string head = source.substr(begin, brace - begin);
	reader r = { k, source, functions, {}, {}, {}, {}, {}, 0, 0, 0, "" };
	for (size_t at = 0; (at = head.find(".param ", at)) != std::string::npos; at++) {
		const std::string text = head.substr(at, head.find('\n', at) - at);
		const std::vector<std::string> words = split(text.substr(0, text.find_last_not_of(",\r") + 1), ' ');
		size_t bytes = 0, align = 1, count = 1;
		for (size_t i = 1; i < words.size(); i++)
			if (words[i] == ".align")
				align = strtoull(words[i + 1].c_str(), nullptr, 10);
			else if (words[i][0] == '.')
				bytes = bytes_of(words[i].substr(1));
		const std::string &name = words.back();
		const size_t bracket = name.find('[');
		if (bracket != std::string::npos)
			count = strtoull(name.c_str() + bracket + 1, nullptr, 10);
		align = align < bytes ? bytes : align;
		k.param_bytes = (k.param_bytes + align - 1) / align * align;
		r.places[name.substr(0, bracket)] = { space::PARAM, (int64_t)k.param_bytes };
		k.param_bytes += bytes * count;
	}
	const size_t most = head.find(".maxntid");
	if (most != std::string::npos)
		k.threads_most = (unsigned)strtoul(head.c_str() + most + 8, nullptr, 10);
	r.places[dynamic] = { space::SHARED, 0 };
	k.files = &files;
	r.body(brace);
	for (const auto &j : r.jumps) {
		auto label = r.labels.find(j.second);
		if (label == r.labels.end())
			give_up(k.name, j.second);
		k.code[j.first].target = label->second;
	}
}

const kernel *module::find(const std::string &name)
{
	auto &place = kernels[name];
	auto entry = entries.find(name);
	if (!place && entry != entries.end()) {
		place = std::make_unique<kernel>();
		place->name = name;
		read(*place, entry->second);
	}
	return place.get();
}

}
