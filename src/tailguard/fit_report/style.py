"""How the page of a report looks, in light and dark and on paper."""

STYLE = """
.tailguard{--ink:#1b1f24;--soft:#59636e;--line:#d8dee4;--paper:#fff;--card:#f6f8fa;--accent:#0b63ce;--bar:#cfe0f7;
--good:#116329;--goodbg:#eaf7ee;--goodline:#a7d8b5;--bad:#a40e26;--badbg:#fff0f0;--badline:#f3b5b5;--warn:#7a4b00;
--warnbg:#fff8e6;--warnline:#ecd08a;color:var(--ink);background:var(--paper);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
max-width:56rem;margin:0 auto;padding:2.5rem 1.5rem 3rem;box-sizing:border-box}
@media (prefers-color-scheme:dark){.tailguard{--ink:#e6edf3;--soft:#9aa6b2;--line:#333b45;--paper:#0f141a;
--card:#171d25;--accent:#7ab4ff;--bar:#1d3a5f;--good:#7ee2a0;--goodbg:#10261a;--goodline:#24553a;--bad:#ff9c9c;--badbg:#2d1417;
--badline:#6a2a2f;--warn:#f2cc74;--warnbg:#2a2110;--warnline:#5f4b1c}html:has(>body>.tailguard){background:#0f141a}}
html:has(>body>.tailguard)>body{margin:0}
.tailguard *{box-sizing:border-box}
.tailguard h1{font-size:1.9rem;line-height:1.2;margin:.1rem 0 .4rem;font-weight:650;letter-spacing:-.01em}
.tailguard h1 code{font-size:.9em;background:none;padding:0;color:var(--accent)}
.tailguard h2{font-size:1.15rem;margin:2.4rem 0 .5rem;font-weight:650}
.tailguard p{margin:.5rem 0}.tailguard .kind{color:var(--accent);font-weight:600;font-size:.8rem;margin:0;
text-transform:uppercase;letter-spacing:.08em}
.tailguard .facts,.tailguard .note{color:var(--soft)}.tailguard .note{font-size:.85em;font-weight:400}
.tailguard code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.9em;overflow-wrap:anywhere}
.tailguard .promise{border:1px solid var(--goodline);background:var(--goodbg);border-radius:12px;
padding:1.1rem 1.4rem 1rem;margin:1.4rem 0}
.tailguard .promise.no{border-color:var(--badline);background:var(--badbg)}
.tailguard .badge{display:inline-block;font-size:.78rem;font-weight:650;color:var(--good);
border:1px solid var(--goodline);border-radius:99px;padding:.1rem .7rem}
.tailguard .no .badge{color:var(--bad);border-color:var(--badline)}
.tailguard .sentence{font-size:1.2rem;line-height:1.45;font-weight:550;margin:.7rem 0 1rem}
.tailguard .sentence span{white-space:nowrap}
.tailguard dl{display:flex;flex-wrap:wrap;gap:.8rem 3rem;margin:0 0 .8rem}
.tailguard dt{color:var(--soft);font-size:.85rem}
.tailguard dd{margin:0;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}
.tailguard dd.note{font-size:.8rem}
.tailguard .warning{border:1px solid var(--warnline);background:var(--warnbg);color:var(--warn);border-radius:8px;
padding:.7rem 1rem;font-weight:550}
.tailguard .aside{border-left:3px solid var(--line);padding:.1rem 0 .1rem .9rem;color:var(--soft);font-size:.93em;
margin-top:.9rem}
.tailguard .scroll{overflow-x:auto;border:1px solid var(--line);border-radius:10px;margin:.7rem 0}
.tailguard table{border-collapse:collapse;width:100%;font-size:.92rem;margin:0;background:none}
.tailguard th,.tailguard td{text-align:left;padding:.42rem .9rem;border:0;border-bottom:1px solid var(--line);
vertical-align:baseline;color:inherit;background:none}
.tailguard th{background:var(--card);color:var(--soft);font-weight:600;font-size:.85em;white-space:nowrap}
.tailguard tbody tr:last-child td{border-bottom:0}
.tailguard .number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.tailguard td.wide{width:28%;min-width:7rem}
.tailguard .bar{display:block;height:.6rem;border-radius:3px;background:var(--card)}
.tailguard .bar span{display:block;height:100%;min-width:2px;border-radius:3px;background:var(--accent)}
.tailguard .cautions ul{margin:.4rem 0;padding-left:1.2rem}.tailguard .cautions li{margin:.35rem 0}
.tailguard footer{margin-top:2.5rem;border-top:1px solid var(--line);color:var(--soft);font-size:.82rem}
@media print{.tailguard{padding:0;max-width:none}.tailguard section{break-inside:avoid}}
"""
