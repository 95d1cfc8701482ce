// The look of report.html: one style sheet for light and dark, one small script that reads values under the pointer.
#pragma once

#include <string>

namespace rlalgo::run::detail {

inline constexpr const char* report_css = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#5c6672;--line:#dfe3e8;--grid:#eceff2;
--s0:#2563eb;--s1:#d9480f;--s2:#0f8a5f;--s3:#9333ea;--s4:#a16207;--s5:#0891b2;--s6:#be185d;--s7:#4b5563;--good:#0f7a52;--bad:#c0341d}
@media(prefers-color-scheme:dark){:root{--bg:#111418;--card:#191e24;--ink:#e6e9ed;--soft:#98a2ae;--line:#2b323a;--grid:#242a31;
--s0:#6ea8fe;--s1:#ff9f5a;--s2:#4fd1a1;--s3:#c792ff;--s4:#e8c468;--s5:#5fd4ee;--s6:#f783ac;--s7:#a0a8b5;--good:#4fd1a1;--bad:#ff8a73}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:24px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:36px 0 12px}
.sub{color:var(--soft);margin:0}
.chip{display:inline-block;padding:1px 10px;border-radius:99px;border:1px solid currentColor;font-size:13px;font-weight:600;vertical-align:3px;margin-left:10px;color:var(--soft)}
.chip.finished{color:var(--good)}.chip.failed,.chip.stopped,.chip.interrupted{color:var(--bad)}.chip.running{color:var(--s0)}
.note{border-left:3px solid var(--bad);background:var(--card);padding:8px 14px;margin:14px 0 0;white-space:pre-wrap;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;margin:20px 0 0}
.tile,.card,.timeline{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:10px 14px}.tile b{display:block;font-size:18px;overflow-wrap:anywhere;font-weight:650;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(330px,1fr));gap:14px}
.card{padding:12px 14px 8px;min-width:0;display:flex;flex-direction:column;position:relative}
.card h3{font-size:14px;margin:0;padding-right:90px;font-weight:600}
.card .read{position:absolute;right:14px;top:13px;color:var(--soft);font-size:12.5px;font-variant-numeric:tabular-nums}
.timeline{padding:12px 14px 8px}
.legend{display:flex;flex-wrap:wrap;gap:1px 12px;margin:6px 0 2px;font-size:12.5px;color:var(--soft)}
.legend span{overflow-wrap:anywhere}.legend i{display:inline-block;width:14px;height:3px;border-radius:2px;vertical-align:middle;margin-right:5px}
.legend b{color:var(--ink);font-weight:550;font-variant-numeric:tabular-nums}
svg{display:block;width:100%;height:auto;padding-top:6px;overflow:visible}
svg text{fill:var(--soft);font-size:10.5px;font-variant-numeric:tabular-nums}
svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--line)}svg .guide{stroke:var(--soft);stroke-dasharray:2 3;visibility:hidden}svg .dot{stroke:var(--card);stroke-width:1.5;visibility:hidden}
.tip{position:absolute;left:0;top:0;visibility:hidden;pointer-events:none;z-index:1;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:4px 9px;font-size:12.5px;white-space:nowrap;box-shadow:0 2px 8px #0003;font-variant-numeric:tabular-nums}
.tip div{color:var(--soft)}.tip .near{color:var(--ink);font-weight:600}.tip i{display:inline-block;width:9px;height:9px;border-radius:5px;margin-right:6px}
a{color:var(--s0)}
svg path{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
svg .raw{opacity:.28;stroke-width:1.2}svg .eval{stroke-dasharray:5 3}svg .band{stroke:none;opacity:.13}
.c0{stroke:var(--s0)}.c1{stroke:var(--s1)}.c2{stroke:var(--s2)}.c3{stroke:var(--s3)}.c4{stroke:var(--s4)}.c5{stroke:var(--s5)}.c6{stroke:var(--s6)}.c7{stroke:var(--s7)}
.f0{fill:var(--s0);background:var(--s0)}.f1{fill:var(--s1);background:var(--s1)}.f2{fill:var(--s2);background:var(--s2)}.f3{fill:var(--s3);background:var(--s3)}
.f4{fill:var(--s4);background:var(--s4)}.f5{fill:var(--s5);background:var(--s5)}.f6{fill:var(--s6);background:var(--s6)}.f7{fill:var(--s7);background:var(--s7)}
details{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:0 0 10px}
summary{cursor:pointer;padding:9px 14px;font-weight:600}summary small{color:var(--soft);font-weight:400;margin-left:8px;font-size:13px}
details>div{padding:0 14px 14px;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{text-align:left;color:var(--soft);font-weight:550;font-size:12.5px;padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:bottom}
td{padding:7px 10px 7px 0;border-bottom:1px solid var(--grid);vertical-align:top}
td.n{font-variant-numeric:tabular-nums;white-space:nowrap;text-align:right}th.n{text-align:right}
td.up{color:var(--good)}td.down{color:var(--bad)}
.text{white-space:pre-wrap;overflow-wrap:anywhere;font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;max-height:260px;overflow-y:auto;min-width:260px}
.prompt{border-left:3px solid var(--line);padding:2px 0 2px 12px;margin:8px 0 6px;color:var(--soft)}
.told{background:var(--grid);border-radius:3px;color:var(--soft)}
.cut{color:var(--bad);font-size:12px;font-style:normal}
.settings{columns:2 420px;column-gap:30px}.settings div{display:flex;gap:14px;border-bottom:1px solid var(--grid);padding:3px 0;break-inside:avoid}
.settings dt,.settings dd{margin:0;overflow-wrap:anywhere;font-size:13.5px}.settings dt{flex:0 0 45%;color:var(--soft)}.settings dd{flex:1}
footer{color:var(--soft);font-size:13px;margin-top:36px}
@media print{.card,details{break-inside:avoid}.text{max-height:none}}
)css";

// Of a page that is served while a run goes on: asks every two seconds whether there is more, and puts it in the place of what is
// shown; sections stay open or closed, and the page where it was scrolled to.
inline constexpr const char* report_live_js = R"js(
let shown=document.body.dataset.stamp;
const refresh=async()=>{
  const mark=document.querySelector('.live');
  try{
    const stamp=await(await fetch('stamp')).text();
    if(stamp!==shown){
      const answer=await fetch('.');
      if(!answer.ok)throw 0;
      const page=new DOMParser().parseFromString(await answer.text(),'text/html');
      const open=new Map([...document.querySelectorAll('details')].map(d=>[d.querySelector('summary').firstChild.textContent,d.open]));
      page.querySelectorAll('details').forEach(d=>{const was=open.get(d.querySelector('summary').firstChild.textContent);if(was!==undefined)d.open=was});
      document.title=page.title;
      document.querySelector('main').replaceWith(page.querySelector('main'));
      shown=page.body.dataset.stamp;
      watchCards();
    }
    document.querySelector('.live').textContent='live';
  }catch(e){mark.textContent='not connected'}
};
setInterval(refresh,2000);
)js";

// Shows the step and the values at the pointer beside it, the nearest line marked. Without it the page is complete, only still.
inline constexpr const char* report_js = R"js(
const watchCards=()=>document.querySelectorAll('.card').forEach(card=>{
  const svg=card.querySelector('svg'),guide=svg.querySelector('.guide'),dot=svg.querySelector('.dot'),tip=card.querySelector('.tip');
  const numbers=text=>text.split(' ').map(Number);
  const lines=[...svg.querySelectorAll('[data-x]')].map(p=>({name:p.dataset.n,color:p.dataset.c,x:numbers(p.dataset.x),y:numbers(p.dataset.y),step:numbers(p.dataset.s),value:p.dataset.v.split('|')}));
  const show=how=>{tip.style.visibility=guide.style.visibility=dot.style.visibility=how};
  const row=(text,value,color,near)=>{
    const div=document.createElement('div'),b=document.createElement('b'),mark=document.createElement('i');
    if(color!==null){mark.className='f'+color;div.append(mark)}
    b.textContent=value;div.append(text+' ',b);
    if(near)div.className='near';
    tip.append(div);
  };
  svg.addEventListener('pointermove',e=>{
    const box=svg.getBoundingClientRect(),frame=card.getBoundingClientRect(),scale=svg.viewBox.baseVal.width/box.width;
    const x=(e.clientX-box.left)*scale,y=(e.clientY-box.top)*scale;
    let step=null,least=Infinity;
    lines.forEach(l=>l.x.forEach((at,i)=>{if(Math.abs(at-x)<least){least=Math.abs(at-x);step=l.step[i]}}));
    if(step===null)return show('hidden');
    const here=lines.map(l=>({l,i:l.step.indexOf(step)})).filter(h=>h.i>=0);
    const distance=h=>Math.abs(h.l.y[h.i]-y);
    const near=here.reduce((a,b)=>distance(b)<distance(a)?b:a),at=near.l.x[near.i];
    guide.setAttribute('x1',at);guide.setAttribute('x2',at);
    dot.setAttribute('cx',at);dot.setAttribute('cy',near.l.y[near.i]);dot.setAttribute('class','dot f'+near.l.color);
    tip.textContent='';
    row('step',step,null,false);
    here.forEach(h=>row(h.l.name,h.l.value[h.i],h.l.color,h===near));
    const left=e.clientX-frame.left,wide=tip.offsetWidth;
    tip.style.left=Math.max(0,left+14+wide>frame.width?left-14-wide:left+14)+'px';
    tip.style.top=e.clientY-frame.top+12+'px';
    show('visible');
  });
  svg.addEventListener('pointerleave',()=>show('hidden'));
});
watchCards();
)js";

[[nodiscard]] inline std::string page_begin(const std::string& escaped_title, const std::string& stamp) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width,initial-scale=1\"><title>" +
         escaped_title + "</title><style>" + report_css + "</style></head><body" +
         (stamp.empty() ? "" : " data-stamp=\"" + stamp + "\"") + "><main>\n";
}

[[nodiscard]] inline std::string page_end(const std::string& made_from, bool live) {
  return "<footer>Made by rlalgo from " + made_from +
         (live ? "; it follows them while this page is open (<span class=\"live\">live</span>)" : "") +
         ".</footer>\n</main><script>" + report_js + (live ? report_live_js : "") + "</script></body></html>\n";
}

}  // namespace rlalgo::run::detail
