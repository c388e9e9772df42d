//! A lexer for as much of Rust as the rules need: it blanks comments, strings and characters out of the code, collects the
//! strings, and finds what is compiled for tests only.

/// A source file, split into what each rule looks at. Lines count from 1 everywhere.
pub struct Scan {
    pub text: String,
    /// The text with the insides of comments, strings and characters turned into spaces; the same number of characters.
    pub code: Vec<char>,
    /// The contents of string literals (escapes as they stand) and the lines that they start on.
    pub strings: Vec<(usize, String)>,
    /// Whether a line belongs to an item under `#[cfg(test)]`; by index of the line from 0.
    pub test_lines: Vec<bool>,
}

impl Scan {
    pub fn new(text: &str) -> Self {
        let mut lexer = Lexer { chars: text.chars().collect(), code: Vec::new(), strings: Vec::new(), at: 0, line: 1 };
        lexer.run();
        let mut scan = Self { text: text.to_owned(), code: lexer.code, strings: lexer.strings, test_lines: Vec::new() };
        scan.test_lines = scan.find_test_lines();
        scan
    }

    /// The masked lines, with their numbers.
    pub fn code_lines(&self) -> Vec<(usize, String)> {
        self.code.split(|c| *c == '\n').enumerate().map(|(i, line)| (i + 1, line.iter().collect())).collect()
    }

    pub fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// The line of a place in `code`.
    pub fn line_at(&self, at: usize) -> usize {
        1 + self.code[..at].iter().filter(|c| **c == '\n').count()
    }

    /// The place of the bracket that closes the first `{` at or after `from`; `None` if there comes a `;` first or none at all.
    pub fn block_end(&self, from: usize) -> Option<usize> {
        let mut depth = 0usize;
        let mut round = 0i32;
        for (at, c) in self.code.iter().enumerate().skip(from) {
            match c {
                '(' | '[' => round += 1,
                ')' | ']' => round -= 1,
                ';' if depth == 0 && round == 0 => return None,
                '{' => depth += 1,
                '}' => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn find_test_lines(&self) -> Vec<bool> {
        let lines = self.code_lines();
        let mut test = vec![false; lines.len()];
        let mut start = 0;
        for (number, line) in &lines {
            let trimmed = line.trim_start();
            if trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test") {
                let from = start + line.chars().count() - trimmed.chars().count();
                let item = from + self.code[from..].iter().position(|c| *c == ']').unwrap_or(0) + 1;
                let end =
                    self.block_end(item).or_else(|| self.code[item..].iter().position(|c| *c == ';').map(|n| item + n)).unwrap_or(item);
                let last = self.line_at(end);
                test[number - 1..last].fill(true);
            }
            start += line.chars().count() + 1;
        }
        test
    }
}

struct Lexer {
    chars: Vec<char>,
    code: Vec<char>,
    strings: Vec<(usize, String)>,
    at: usize,
    line: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Takes a character, as code or blanked.
    fn take(&mut self, blank: bool) -> char {
        let c = self.chars[self.at];
        self.at += 1;
        self.line += usize::from(c == '\n');
        self.code.push(if blank && c != '\n' { ' ' } else { c });
        c
    }

    fn run(&mut self) {
        while self.at < self.chars.len() {
            let before = self.at.checked_sub(1).map_or(' ', |i| self.chars[i]);
            let in_word = before.is_alphanumeric() || before == '_';
            match (self.peek(0), self.peek(1)) {
                ('/', '/') => {
                    while self.at < self.chars.len() && self.peek(0) != '\n' {
                        self.take(true);
                    }
                }
                ('/', '*') => self.block_comment(),
                ('"', _) => self.string(),
                ('r', '"' | '#') if !in_word || "bc".contains(before) => self.raw_string(),
                ('\'', '\\') => self.character(),
                ('\'', _) if self.peek(2) == '\'' => self.character(),
                _ => {
                    self.take(false);
                }
            }
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            let step = match (self.peek(0), self.peek(1)) {
                ('/', '*') => 1,
                ('*', '/') => -1,
                _ => 0,
            };
            depth += step;
            self.take(true);
            if step != 0 {
                self.take(true);
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        let (line, mut content) = (self.line, String::new());
        self.take(false);
        while self.at < self.chars.len() && self.peek(0) != '"' {
            if self.peek(0) == '\\' {
                content.push(self.take(true));
            }
            if self.at < self.chars.len() {
                content.push(self.take(true));
            }
        }
        if self.at < self.chars.len() {
            self.take(false);
        }
        self.strings.push((line, content));
    }

    /// At an `r`: a raw string, or a raw identifier or a word after all.
    fn raw_string(&mut self) {
        let hashes = self.chars[self.at + 1..].iter().take_while(|c| **c == '#').count();
        if self.peek(1 + hashes) != '"' {
            self.take(false);
            return;
        }
        let (line, mut content) = (self.line, String::new());
        for _ in 0..hashes + 2 {
            self.take(false);
        }
        let closes = |lexer: &Self| lexer.peek(0) == '"' && (1..=hashes).all(|n| lexer.peek(n) == '#');
        while self.at < self.chars.len() && !closes(self) {
            content.push(self.take(true));
        }
        for _ in 0..(hashes + 1).min(self.chars.len() - self.at) {
            self.take(false);
        }
        self.strings.push((line, content));
    }

    fn character(&mut self) {
        self.take(false);
        while self.at < self.chars.len() && self.peek(0) != '\'' {
            if self.peek(0) == '\\' {
                self.take(true);
            }
            if self.at < self.chars.len() {
                self.take(true);
            }
        }
        if self.at < self.chars.len() {
            self.take(false);
        }
    }
}
