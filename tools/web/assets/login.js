// Hands in the secret of the link. It stands behind the `#`, which no server is sent and no log
// holds, and is taken out of the address before anything else.

const told = document.getElementById('told');
const secret = /^#[A-Za-z0-9_-]{43}$/.test(location.hash) ? location.hash.slice(1) : null;

async function logIn() {
  if (secret !== null) {
    history.replaceState(null, '', '/login');
    const body = JSON.stringify({ link: secret });
    const answer = await fetch('/login', { method: 'POST', body });
    if (answer.ok) return location.replace('/');
    told.textContent = (await answer.json()).text;
    return;
  }
  // A link on another page leads here without the cookie. Asked by this page, it is sent.
  const answer = await fetch('/history');
  if (answer.ok) location.replace('/' + location.hash);
}

logIn().catch(() => { told.textContent = 'osmos web does not answer.'; });
