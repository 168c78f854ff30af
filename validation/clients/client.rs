// A complete client of refhmc's protocol: leapfrog and HMC on Neal's funnel, Rust and its standard library alone.
//
//     rustc -O client.rs -o client
//     refhmc check --cmd "./client"                        all rows PASS, exit status 0
//     refhmc check --cmd "./client --bug half-drift"       FAIL, 1;  --bug always-accept, --bug gradient;  --crash, --hang: 4
//
// Put your own sampler in place of the three functions below; what it does not have, leave out of "ops".
use std::io::{self, BufRead, Write};

// ------------------------------------------------------------------------------------------------------ the sampler
// L(v, x) = -v^2/18 + n v/2 - e^v |x|^2 / 2
fn logp(q: &[f64]) -> f64 {
    let s: f64 = q[1..].iter().map(|x| x * x).sum();
    -q[0] * q[0] / 18.0 + 0.5 * (q.len() - 1) as f64 * q[0] - 0.5 * q[0].exp() * s
}

fn grad(q: &[f64], bug: &str) -> Vec<f64> {
    let (e, s): (f64, f64) = (q[0].exp(), q[1..].iter().map(|x| x * x).sum());
    let half = if bug == "gradient" { 1.0 } else { 0.5 };
    let mut g = vec![-q[0] / 9.0 + 0.5 * (q.len() - 1) as f64 - half * e * s];
    g.extend(q[1..].iter().map(|x| -e * x));
    g
}

fn leapfrog(q: &mut [f64], p: &mut [f64], eps: f64, n: usize, bug: &str) {
    let drift = if bug == "half-drift" { 0.5 * eps } else { eps };
    for _ in 0..n {
        for (p, g) in p.iter_mut().zip(grad(q, bug)) { *p += 0.5 * eps * g; }
        for (q, p) in q.iter_mut().zip(p.iter()) { *q += drift * p; }
        for (p, g) in p.iter_mut().zip(grad(q, bug)) { *p += 0.5 * eps * g; }
    }
}

fn energy(q: &[f64], p: &[f64]) -> f64 {
    0.5 * p.iter().map(|x| x * x).sum::<f64>() - logp(q)
}

// ------------------------------------------------------------------- reading a line: the value of a key of the object itself
fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (bytes, mut depth, mut i) = (line.as_bytes(), 0, 0);
    while i < bytes.len() {
        match bytes[i] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let mut end = i + 1;
                while end < bytes.len() && bytes[end] != b'"' { end += if bytes[end] == b'\\' { 2 } else { 1 }; }
                let rest = line.get(end + 1..)?.trim_start();
                if depth == 1 && rest.starts_with(':') && line.get(i + 1..end) == Some(key) {
                    return Some(rest[1..].trim_start());
                }
                i = end;
            }
            _ => {}
        }
        i += 1;
    }
    None
}

fn numbers(value: Option<&str>) -> Vec<f64> {
    // One number, or an array of them; each may be a string.
    let text = value.unwrap_or("[]");
    let end = if text.starts_with('[') { text.find(']') } else { text.find([',', '}']) };
    text[..end.unwrap_or(text.len())]
        .split(|c: char| "[], \"".contains(c))
        .filter(|word| !word.is_empty())
        .map(|word| parse(word).unwrap_or(f64::NAN))
        .collect()
}

fn parse(word: &str) -> Option<f64> {
    // Decimal, or [-]0xH.HHHp[-]D, which the standard library does not read.
    let (sign, bare) = word.strip_prefix('-').map_or((1.0, word), |rest| (-1.0, rest));
    let Some(hex) = bare.strip_prefix("0x") else { return word.parse().ok() };
    let (digits, power) = hex.split_once('p').unwrap_or((hex, "0"));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let mut power: i32 = power.parse::<i32>().ok()? - 4 * part.len() as i32;
    let mut value = u64::from_str_radix(&format!("{whole}{part}"), 16).ok()? as f64;
    while power != 0 {
        let by = power.clamp(-1000, 1000);  // exact: at most the last of these rounds, to a subnormal number
        value *= 2f64.powi(by);
        power -= by;
    }
    Some(sign * value)
}

fn number(line: &str, key: &str, otherwise: f64) -> f64 {
    value_of(line, key).and_then(|value| numbers(Some(value)).first().copied()).unwrap_or(otherwise)
}

fn text(x: &[f64]) -> String {
    // {:e} writes the shortest decimal that reads back as the same number.
    let items: Vec<String> = x.iter().map(|x| format!("\"{x:e}\"")).collect();
    format!("[{}]", items.join(","))
}

// -------------------------------------------------------------------------------------------------------- the answers
fn answer(line: &str, bug: &str, accident: &str) -> String {
    let op = value_of(line, "op").and_then(|value| value.split('"').nth(1)).unwrap_or("");
    let (mut q, mut p) = (numbers(value_of(line, "q")), numbers(value_of(line, "p")));
    let (eps, n) = (number(line, "eps", 0.1), number(line, "n", 10.0) as usize);
    match op {
        "capabilities" => concat!(
            r#""name":"client.rs","dim":3,"target":"funnel","args":{"n":2},"eps":0.1,"#,
            r#""ops":["capabilities","logp","grad","step","transition"]"#
        ).into(),
        "logp" => format!("\"logp\":\"{:e}\"", logp(&q)),
        "grad" => format!("\"grad\":{}", text(&grad(&q, bug))),
        "step" => {
            if accident == "--crash" { panic!("a fault was asked for"); }
            while accident == "--hang" { std::hint::spin_loop(); }
            leapfrog(&mut q, &mut p, eps, n, bug);
            format!("\"q\":{},\"p\":{}", text(&q), text(&p))
        }
        "transition" => {
            // HMC on the momentum p0 and the uniform u
            p = numbers(value_of(line, "p0"));
            let Some(&u) = numbers(value_of(line, "u")).first() else { return "\"ask\":\"u\"".into() };
            let (mut end, before) = (q.clone(), energy(&q, &p));
            leapfrog(&mut end, &mut p, eps, n, bug);
            let accepted = u < (before - energy(&end, &p)).exp() || bug == "always-accept";  // NaN is not accepted
            format!("\"q\":{}", text(if accepted { &end } else { &q }))
        }
        _ => r#""error":{"code":"not_supported","message":"no such op"}"#.into(),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let bug = if words.first().is_some_and(|word| word == "--bug") { words[1].clone() } else { String::new() };
    let accident = words.last().cloned().unwrap_or_default();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        println!("{{\"id\":{},{}}}", number(&line, "id", 0.0) as i64, answer(&line, &bug, &accident));
        io::stdout().flush().ok();
    }
}
