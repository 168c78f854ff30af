// A complete client of refhmc's protocol: leapfrog and HMC on Neal's funnel, C++17 and its standard library alone.
//
//     c++ -std=c++17 -O2 client.cpp -o client
//     refhmc check --cmd "./client"                        all rows PASS, exit status 0
//     refhmc check --cmd "./client --bug half-drift"       FAIL, 1;  --bug always-accept, --bug gradient;  --crash, --hang: 4
//
// Put your own sampler in place of the three functions below; what it does not have, leave out of "ops".
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

using Vec = std::vector<double>;
static std::string bug, accident;

// ------------------------------------------------------------------------------------------------------ the sampler
// L(v, x) = -v^2/18 + n v/2 - e^v |x|^2 / 2
static double logp(const Vec& q) {
    double S = 0;
    for (size_t i = 1; i < q.size(); ++i) S += q[i] * q[i];
    return -q[0] * q[0] / 18 + 0.5 * (q.size() - 1) * q[0] - 0.5 * std::exp(q[0]) * S;
}

static Vec grad(const Vec& q) {
    Vec g(q.size());
    double S = 0, e = std::exp(q[0]);
    for (size_t i = 1; i < q.size(); ++i) S += q[i] * q[i], g[i] = -e * q[i];
    g[0] = -q[0] / 9 + 0.5 * (q.size() - 1) - (bug == "gradient" ? 1.0 : 0.5) * e * S;
    return g;
}

static void leapfrog(Vec& q, Vec& p, double eps, int n) {
    Vec g = grad(q);
    for (int k = 0; k < n; ++k) {
        for (size_t i = 0; i < q.size(); ++i) p[i] += 0.5 * eps * g[i];
        for (size_t i = 0; i < q.size(); ++i) q[i] += (bug == "half-drift" ? 0.5 : 1.0) * eps * p[i];
        g = grad(q);
        for (size_t i = 0; i < q.size(); ++i) p[i] += 0.5 * eps * g[i];
    }
}

static double energy(const Vec& q, const Vec& p) {
    double K = 0;
    for (double x : p) K += 0.5 * x * x;
    return K - logp(q);
}

// ------------------------------------------------------------------- reading a line: the value of a key of the object itself
static const char* value_of(const std::string& line, const std::string& key) {
    int depth = 0;
    for (size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '{' || line[i] == '[') ++depth;
        if (line[i] == '}' || line[i] == ']') --depth;
        if (line[i] != '"') continue;
        size_t end = i + 1;
        while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
        size_t next = line.find_first_not_of(" \t", end + 1);
        if (depth == 1 && next < line.size() && line[next] == ':' && line.compare(i + 1, end - i - 1, key) == 0)
            return line.c_str() + line.find_first_not_of(" \t", next + 1);
        i = end;
    }
    return nullptr;
}

static Vec numbers(const char* at) {  // one number or an array of them; each may be a string; strtod reads hex floats
    Vec found;
    if (at == nullptr) return found;
    bool array = *at == '[';
    for (at += array; *at && *at != ']'; ) {
        if (*at == ',' || *at == ' ' || *at == '"') { ++at; continue; }
        char* end;
        found.push_back(std::strtod(at, &end));
        if (end == at || !array) break;
        at = end;
    }
    return found;
}

static double number(const std::string& line, const char* key, double otherwise) {
    Vec found = numbers(value_of(line, key));
    return found.empty() ? otherwise : found[0];
}

static std::string text(double x) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "\"%a\"", x);
    return buffer;
}

static std::string text(const Vec& x) {
    std::string out = "[";
    for (size_t i = 0; i < x.size(); ++i) out += (i ? "," : "") + text(x[i]);
    return out + "]";
}

static std::string word(const std::string& line, const char* key) {
    const char* at = value_of(line, key);
    if (at == nullptr || *at != '"') return "";
    std::string rest(at + 1);
    return rest.substr(0, rest.find('"'));
}

// -------------------------------------------------------------------------------------------------------- the answers
static std::string answer(const std::string& line) {
    std::string op = word(line, "op");
    Vec q = numbers(value_of(line, "q")), p = numbers(value_of(line, "p"));
    double eps = number(line, "eps", 0.1);
    int n = static_cast<int>(number(line, "n", 10));
    if (op == "capabilities")
        return "\"name\":\"client.cpp\",\"dim\":3,\"target\":\"funnel\",\"args\":{\"n\":2},\"eps\":0.1,"
               "\"ops\":[\"capabilities\",\"logp\",\"grad\",\"step\",\"transition\"]";
    if (op == "logp") return "\"logp\":" + text(logp(q));
    if (op == "grad") return "\"grad\":" + text(grad(q));
    if (op == "step") {
        if (accident == "--crash") { std::cerr << "client.cpp: a fault was asked for" << std::endl; std::abort(); }
        while (accident == "--hang") {}
        leapfrog(q, p, eps, n);
        return "\"q\":" + text(q) + ",\"p\":" + text(p);
    }
    if (op == "transition") {  // HMC on the momentum p0 and the uniform u
        Vec u = numbers(value_of(line, "u")), end = q;
        p = numbers(value_of(line, "p0"));
        if (u.empty()) return "\"ask\":\"u\"";
        double before = energy(q, p);
        leapfrog(end, p, eps, n);
        double change = before - energy(end, p);  // NaN is not accepted
        bool accepted = u[0] < std::exp(change) || bug == "always-accept";
        return "\"q\":" + text(accepted ? end : q);
    }
    return "\"error\":{\"code\":\"not_supported\",\"message\":\"no such op\"}";
}

int main(int count, char** words) {
    for (int i = 1; i < count; ++i) {
        if (std::string(words[i]) == "--bug" && i + 1 < count) bug = words[++i];
        else accident = words[i];
    }
    for (std::string line; std::getline(std::cin, line); )
        std::cout << "{\"id\":" << static_cast<long>(number(line, "id", 0)) << "," << answer(line) << "}" << std::endl;
}
